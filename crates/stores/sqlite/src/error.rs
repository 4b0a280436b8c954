//! Errors of SQLite and of the file system, as clinch reports them.

use std::io;
use std::path::Path;

use clinch_core::{Effect, Error, ErrorKind};
use rusqlite::ErrorCode;

use crate::file::blocker::Blocker;

/// Why an operation of a transaction failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// SQLite failed: the transaction is rolled back.
    Sql(rusqlite::Error),
    /// The operation itself is refused. It has written nothing; the others continue.
    Refused(Error),
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The result of a step inside a transaction.
pub(crate) type Step<T> = Result<T, Fail>;

/// Another process is in a transaction.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The connection itself may have failed: a new one may work.
pub(crate) fn needs_reopen(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Writing failed below SQLite: earlier writes may be lost, too, even if a later one succeeds.
pub(crate) fn is_write_failure(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(
        code,
        Some(
            ffi::SQLITE_IOERR_WRITE
                | ffi::SQLITE_IOERR_FSYNC
                | ffi::SQLITE_IOERR_DIR_FSYNC
                | ffi::SQLITE_IOERR_TRUNCATE
                | ffi::SQLITE_IOERR_COMMIT_ATOMIC
        )
    )
}

/// The error of a client after such a failure.
pub(crate) fn poisoned(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "writing to {} has failed before; this client grants nothing more",
            path.display()
        ),
    )
    .with_advice("check the disk, then connect again")
}

/// Another process keeps the writer's lock.
pub(crate) fn blocked(path: &Path) -> Error {
    let (blocker, advice) = match Blocker::find(path) {
        Some(blocker) => (
            format!("blocked by {blocker}"),
            "continue or end that process",
        ),
        None => (
            "kept busy by another process".to_owned(),
            "try again, or allow more time with ?busy=30s",
        ),
    };
    Error::new(
        ErrorKind::Unreachable,
        format!("{} is {blocker}", path.display()),
    )
    .with_advice(advice)
}

/// An error of SQLite on the store at `path`.
pub(crate) fn sql(error: rusqlite::Error, path: &Path) -> Error {
    let shown = path.display();
    let new = |kind, message: String| Error::new(kind, message);
    let made = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => blocked(path),
        Some(ErrorCode::DiskFull) => new(
            ErrorKind::Unreachable,
            format!("the disk of {shown} is full"),
        )
        .with_advice("free some space: nothing is granted until then"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return corrupt(path, &error.to_string()).with_source(error);
        }
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
        ) => {
            return denied(path, "cannot be written").with_source(error);
        }
        Some(ErrorCode::CannotOpen) => new(
            ErrorKind::Unreachable,
            format!("{shown} cannot be opened: {error}"),
        )
        .with_advice("check that its folder exists and can be written"),
        Some(ErrorCode::SystemIoFailure) => new(
            ErrorKind::Unreachable,
            format!("reading or writing {shown} failed: {error}"),
        )
        .with_advice("check the disk"),
        _ => new(ErrorKind::Internal, format!("SQLite on {shown}: {error}")),
    };
    made.with_source(error)
}

/// An error of the file system on `path`.
pub(crate) fn io(error: io::Error, path: &Path, what: &str) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return denied(path, &format!("{what}: {error}")).with_source(error);
    }
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            ErrorKind::Invalid
        }
        _ => ErrorKind::Unreachable,
    };
    Error::new(kind, format!("{}: {what}: {error}", path.display())).with_source(error)
}

/// The file is not a store of this clinch.
pub(crate) fn corrupt(path: &Path, why: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} is not a clinch store ({why}); it was left untouched",
            path.display()
        ),
    )
    .with_advice("give another path, or move the file away")
}

/// The record of one name cannot be read.
pub(crate) fn damaged(path: &Path, name: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "the record of {name} in {} is damaged; nothing is granted on it, and other names are not affected",
            path.display()
        ),
    )
    .with_advice(DAMAGED_ADVICE)
}

/// The advice for a damaged record.
pub(crate) const DAMAGED_ADVICE: &str = "take another name or another file; or, once nothing holds a lock of this file, stop its \
     users and remove it with its -wal and -shm";

/// Whether a column has content that clinch never writes.
pub(crate) fn is_misfit(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
    )
}

/// Access is refused.
pub(crate) fn denied(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{} {why}", path.display())).with_advice(
        "run as the user that owns it, change its permissions, or give another path with --store",
    )
}

/// The store has been closed.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store has been closed")
}

/// The store was opened by the process from which this one was forked.
pub(crate) fn forked() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the store belongs to the process that opened it, and this one was forked from it",
    )
    // In a forked child SQLite treats the locks of the parent as its own, also on a new connection.
    .with_advice("start another program (exec) in the child, and connect there")
}

/// The thread that ran an operation ended without an answer.
pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Internal, "an operation ended without an answer")
        .with_effect(Effect::Possible)
}
