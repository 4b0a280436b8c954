//! Errors of the server and of the connection, and what they mean for a lock.

use clinch_core::{Effect, Error, ErrorKind};
use clinch_table::Failure;

/// Why a request has no complete response.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The server has refused a statement: its code and message.
    Refused(u16, String),
    /// It was never sent.
    Unsent(Error),
    /// It was sent, or may have been, and there is no reply.
    Lost(String),
}

/// A deadlock; a row that another transaction keeps locked; a row that has changed since; a duplicate key.
/// The statement was rolled back and can be sent again.
const AGAIN: [u16; 4] = [1213, 1205, 1020, 1062];
/// The server was stopping, or the statement or the connection was killed: perhaps after the statement was
/// applied.
const UNSURE: [u16; 12] = [
    1053, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 1969, 2013, 3024,
];
/// The server takes no writes now, or has no room: nothing was applied.
const NOT_NOW: [u16; 9] = [1021, 1040, 1114, 1203, 1206, 1290, 1792, 1836, 3100];
/// The server takes no writes: it may be the old primary after a switch, and the address may lead to
/// another one by now.
const READ_ONLY: [u16; 4] = [1290, 1792, 1836, 3100];
/// The user lacks a right.
const DENIED: [u16; 8] = [1044, 1045, 1142, 1143, 1227, 1370, 1698, 1820];
/// A table of ours is missing, or has other columns.
const FOREIGN_TABLES: [u16; 5] = [1054, 1072, 1136, 1146, 1364];

impl RequestError {
    /// Whether the statement was rolled back and can be sent again.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(code, _) if AGAIN.contains(code))
    }

    /// Whether the request may have taken effect, or may still.
    fn is_unanswered(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(code, _) => UNSURE.contains(code),
            Self::Unsent(_) => false,
        }
    }

    /// Whether the statement was killed.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, Self::Refused(1317 | 1969 | 3024, _))
    }

    /// Whether the server takes no writes.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Refused(code, _) if READ_ONLY.contains(code))
    }

    /// Whether a table is missing.
    pub(crate) fn is_missing_table(&self) -> bool {
        matches!(self, Self::Refused(1146, _))
    }

    /// Whether the user lacks a right.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Refused(code, _) if DENIED.contains(code))
    }

    /// Whether the connection can be used again.
    pub(crate) fn leaves_connection_usable(&self) -> bool {
        // 1205 rolls back the statement only: a transaction may still be open.
        let usable = |code| !UNSURE.contains(code) && *code != 1205 && !READ_ONLY.contains(code);
        matches!(self, Self::Refused(code, _) if usable(code))
    }

    /// For the table.
    pub(crate) fn into_failure(self, to: &str) -> Failure {
        let make = match &self {
            Self::Refused(1213, _) => Failure::deadlock,
            _ if self.is_conflict() => Failure::conflict,
            _ if self.is_unanswered() => Failure::unanswered,
            _ => Failure::refused,
        };
        make(self.into_error(to))
    }

    /// For a caller.
    pub(crate) fn into_error(self, to: &str) -> Error {
        match self {
            Self::Unsent(error) => error,
            Self::Lost(why) => Error::new(ErrorKind::Unreachable, format!("{to}: {why}"))
                .with_effect(Effect::Possible),
            Self::Refused(code, text) => refused(code, &format!("{to}: {text} ({code})")),
        }
    }
}

fn refused(code: u16, text: &str) -> Error {
    let made = |kind| Error::new(kind, text);
    match code {
        code if UNSURE.contains(&code) => {
            made(ErrorKind::Unreachable).with_effect(Effect::Possible)
        }
        1264 | 1690 => Error::new(
            ErrorKind::Unsupported,
            format!("{text}: is the server's clock before 2020?"),
        )
        .with_advice("set the server's clock"),
        code if READ_ONLY.contains(&code) => made(ErrorKind::Unreachable)
            .with_advice("it takes no writes: is it a replica by now?"),
        code if AGAIN.contains(&code) => made(ErrorKind::Unreachable)
            .with_advice("another transaction keeps the lock's row locked: look for an open one"),
        code if NOT_NOW.contains(&code) => made(ErrorKind::Unreachable),
        code if DENIED.contains(&code) => made(ErrorKind::Denied).with_advice(
            "the user needs SELECT, INSERT, UPDATE and DELETE on the tables of docs/stores/mysql.md",
        ),
        code if FOREIGN_TABLES.contains(&code) => made(ErrorKind::Corrupt)
            .with_advice("the tables are not as `clinch doctor --print-schema` prints them"),
        _ => made(ErrorKind::Internal),
    }
}

impl From<mysql_async::Error> for RequestError {
    fn from(error: mysql_async::Error) -> Self {
        match error {
            mysql_async::Error::Server(server) => Self::Refused(server.code, server.message),
            other => Self::Lost(one_line(&other.to_string())),
        }
    }
}

/// An error before any request of ours had left.
pub(crate) fn connecting(error: mysql_async::Error, to: &str) -> Error {
    let (kind, advice) = match &error {
        mysql_async::Error::Server(server) => match server.code {
            1049 => (ErrorKind::Invalid, "make the database, or name another one"),
            code if DENIED.contains(&code) => {
                (ErrorKind::Denied, "check the user and the password")
            }
            3159 => (ErrorKind::Denied, "the server wants TLS: add ?tls=on"),
            1251 | 2059 => (
                ErrorKind::Denied,
                "the user's authentication plugin is not supported",
            ),
            1040 | 1203 => (
                ErrorKind::Unreachable,
                "raise max_connections, or use a smaller pool=",
            ),
            1193 | 1231 => (
                ErrorKind::Unsupported,
                "clinch needs MySQL 8.0 or MariaDB 10.6, or newer",
            ),
            _ => (ErrorKind::Unreachable, "is the server running there?"),
        },
        mysql_async::Error::Driver(mysql_async::DriverError::NoClientSslFlagFromServer) => (
            ErrorKind::Unsupported,
            "the server has no TLS: set it up there, or leave out tls=",
        ),
        mysql_async::Error::Url(_) | mysql_async::Error::Driver(_) => {
            (ErrorKind::Invalid, "check the URL")
        }
        _ => (ErrorKind::Unreachable, "is the server running there?"),
    };
    let text = one_line(&error.to_string());
    Error::new(kind, format!("cannot connect to {to}: {text}"))
        .with_advice(advice)
        .with_source(error)
}

/// On one line, without the prefix that the driver repeats before each network error.
fn one_line(text: &str) -> String {
    let text = text.replace("Input/output error: ", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
