//! Errors of the driver, for a caller with its own connection.

use clinch_core::{Effect, Error, ErrorKind};
use mysql_async::{DriverError, Error as Driver, ServerError};

/// A row lock did not come in time.
pub(super) const LOCK_WAIT: u16 = 1205;
/// The transaction was rolled back to end a deadlock.
pub(super) const DEADLOCK: u16 = 1213;
/// MySQL's code for a row that is locked, where MariaDB has 1205.
pub(super) const NOT_WAITED: u16 = 3572;
/// The row was changed since the transaction's snapshot (MariaDB, where that is asked for).
const CHANGED: u16 = 1020;

/// The server was stopping, or the statement or the connection was killed: perhaps after it was applied.
const UNSURE: [u16; 12] = [
    1053, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 1969, 2013, 3024,
];
/// The server takes no writes now, or has no room: nothing was done.
const NOT_NOW: [u16; 9] = [1021, 1040, 1114, 1203, 1206, 1290, 1792, 1836, 3100];

/// An error of a statement. `alone` is whether it was its own transaction: then a lost reply leaves
/// open whether it was done, where in a transaction nothing is done before the commit.
pub(super) fn of_statement(error: Driver, alone: bool) -> Error {
    let made = |kind, text: String| Error::new(kind, text).with_store("mysql");
    let translated = match &error {
        Driver::Server(answer) if UNSURE.contains(&answer.code) => {
            let ended = made(ErrorKind::Unreachable, answer.to_string());
            match alone {
                true => ended.with_effect(Effect::Possible),
                false => ended.with_advice("roll back, and begin the transaction again"),
            }
        }
        Driver::Server(answer) => of_server(answer),
        Driver::Driver(DriverError::Params(_) | DriverError::StmtParamsMismatch { .. }) => {
            made(ErrorKind::Internal, error.to_string())
        }
        _ => {
            let lost = made(
                ErrorKind::Unreachable,
                format!("the connection broke: {error}"),
            );
            match alone {
                true => lost.with_effect(Effect::Possible),
                false => lost.with_advice("a transaction that was open is rolled back"),
            }
        }
    };
    translated.with_source(error)
}

/// A refusal: the statement was not done.
fn of_server(answer: &ServerError) -> Error {
    let (kind, advice) = match answer.code {
        DEADLOCK => (
            ErrorKind::Unreachable,
            "try again; a transaction that was open is rolled back as a whole: begin it again",
        ),
        LOCK_WAIT | NOT_WAITED => (
            ErrorKind::Unreachable,
            "another transaction keeps the row locked: roll back, and try again",
        ),
        code if NOT_NOW.contains(&code) => (ErrorKind::Unreachable, "try again later"),
        CHANGED => (ErrorKind::Unreachable, "roll back, and try again"),
        1044 | 1045 | 1142 | 1143 | 1227 => (ErrorKind::Denied, "the user may not do this"),
        1054 | 1146 | 1049 => (
            ErrorKind::Invalid,
            "check the names of the table and its columns",
        ),
        1064 => (
            ErrorKind::Unsupported,
            "the server is too old for this pattern",
        ),
        // Constraints, types, lengths: what the caller's own data refuse.
        _ => (ErrorKind::Invalid, ""),
    };
    let error = Error::new(kind, format!("{answer}")).with_store("mysql");
    match advice {
        "" => error,
        advice => error.with_advice(advice),
    }
}

/// The code of a refusal.
pub(super) fn code(error: &Driver) -> Option<u16> {
    match error {
        Driver::Server(answer) => Some(answer.code),
        _ => None,
    }
}

/// A column has what it should not have.
pub(super) fn wrong_type() -> Error {
    Error::new(ErrorKind::Corrupt, "a column is not of the right type")
        .with_store("mysql")
        .with_advice("nothing was changed; see what this pattern expects of it")
}

/// The connection is closed, or the answer to an earlier statement is outstanding.
pub(super) fn out_of_step() -> Error {
    let text = "the connection is closed, or a call on it was given up half-way";
    Error::new(ErrorKind::Unreachable, text)
        .with_store("mysql")
        .with_advice("nothing was sent; drop the connection, and use another")
}

/// A call that belongs outside of transactions was made in one.
pub(super) fn in_transaction(what: &str) -> Error {
    Error::invalid(format!("{what} inside a transaction"))
        .with_store("mysql")
        .with_advice(
            "others cannot see it before the commit: use a connection without a transaction",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> Driver {
        Driver::Server(ServerError {
            code,
            message: "no".to_owned(),
            state: "HY000".to_owned(),
        })
    }

    #[test]
    fn only_what_surely_did_nothing_is_called_so() {
        for (code, kind, unsure) in [
            (1927, ErrorKind::Unreachable, true),
            (1317, ErrorKind::Unreachable, true),
            (1205, ErrorKind::Unreachable, false),
            (1213, ErrorKind::Unreachable, false),
            (1290, ErrorKind::Unreachable, false),
            (1142, ErrorKind::Denied, false),
            (1146, ErrorKind::Invalid, false),
            (1264, ErrorKind::Invalid, false),
        ] {
            let error = of_statement(refused(code), true);
            assert_eq!(
                (error.kind(), error.may_have_taken_effect()),
                (kind, unsure),
                "{code}"
            );
            // Before a commit nothing has taken effect.
            assert!(!of_statement(refused(code), false).may_have_taken_effect());
        }
        let lost = Driver::Driver(DriverError::ConnectionClosed);
        assert!(of_statement(lost, true).may_have_taken_effect());
    }
}
