//! Errors of the driver, and what they mean to a caller who has a connection of its own.

use clinch_core::{Effect, Error, ErrorKind};
use mysql_async::{DriverError, Error as Driver, ServerError};

/// A row lock did not come in time.
pub(super) const LOCK_WAIT: u16 = 1205;
/// The transaction was rolled back to end a deadlock.
pub(super) const DEADLOCK: u16 = 1213;
/// MySQL's own word for a row that is locked, where MariaDB says 1205.
pub(super) const NOT_WAITED: u16 = 3572;
/// The row was changed since the transaction's snapshot (MariaDB, where that is asked for).
const CHANGED: u16 = 1020;

/// An error of a statement. `alone` is whether it was its own transaction: then a lost reply leaves
/// open whether it was done, where in a transaction nothing is done before the commit.
pub(super) fn of_statement(error: Driver, alone: bool) -> Error {
    let made = |kind, text: String| Error::new(kind, text).with_store("mysql");
    let translated = match &error {
        Driver::Server(answer) => of_server(answer),
        Driver::Driver(DriverError::FromValue { .. } | DriverError::FromRow { .. }) => made(
            ErrorKind::Corrupt,
            format!("a column is not of the right type: {error}"),
        ),
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
            "somebody has the row locked for long: roll back, and try again",
        ),
        CHANGED => (ErrorKind::Unreachable, "roll back, and try again"),
        1044 | 1045 | 1142 | 1143 | 1227 | 1290 => (
            ErrorKind::Denied,
            "the user may not do this, or the server is read-only",
        ),
        1054 | 1146 | 1049 => (
            ErrorKind::Invalid,
            "check the names of the table and its columns",
        ),
        1064 => (
            ErrorKind::Unsupported,
            "the server is too old for this form",
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
        .with_advice("nobody sees it before the commit: use a connection without a transaction")
}
