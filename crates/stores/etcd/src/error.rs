//! Errors of etcd, and what they mean for a lock.

use clinch_core::{Effect, Error, ErrorKind};
use tonic::{Code, Status};

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The status from the server or the transport, and the member that it concerns.
    Status(Status, String),
    Clinch(Error),
}

impl CallError {
    /// The request named a lease that does not exist (any more); nothing was changed.
    pub(crate) fn is_lease_not_found(&self) -> bool {
        matches!(self, Self::Status(status, _)
            if status.code() == Code::NotFound && status.message().contains("lease not found"))
    }

    /// The lease to grant exists already: an earlier copy of the request has arrived.
    pub(crate) fn is_lease_there(&self) -> bool {
        matches!(self, Self::Status(status, _)
            if status.code() == Code::FailedPrecondition && status.message().contains("exists"))
    }

    /// The token of the login is no longer valid; nothing was changed.
    pub(crate) fn is_stale_login(&self) -> bool {
        matches!(self, Self::Status(status, _) if status.code() == Code::Unauthenticated
            || status.message().contains("invalid auth token")
            || status.message().contains("revision in header is old"))
    }

    /// Whether the next request should go to another member.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::Status(status, _) => matches!(
                status.code(),
                Code::Unavailable
                    | Code::Unknown
                    | Code::Cancelled
                    | Code::Internal
                    | Code::DeadlineExceeded
            ),
            Self::Clinch(error) => error.kind() == ErrorKind::Unreachable,
        }
    }

    pub(crate) fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Clinch(error) => error.may_have_taken_effect(),
            Self::Status(status, member) => {
                let error = Error::from(Self::Status(status.clone(), member.clone()));
                error.may_have_taken_effect()
            }
        }
    }

    /// The error of a request that only reads.
    pub(crate) fn without_effect(self) -> Error {
        Error::from(self).with_effect(Effect::None)
    }
}

impl From<CallError> for Error {
    /// The error of a request that writes.
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(status, member) => from_status(&status, &member),
            CallError::Clinch(error) => error,
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Clinch(error)
    }
}

fn from_status(status: &Status, member: &str) -> Error {
    let message = status.message();
    let made = |kind, advice: &str| {
        let error = Error::new(kind, format!("{member}: {message}"));
        match advice {
            "" => error,
            advice => error.with_advice(advice),
        }
    };
    match status.code() {
        Code::Unauthenticated => made(ErrorKind::Denied, "check the user and the password"),
        Code::PermissionDenied => made(
            ErrorKind::Denied,
            "the user's role needs to read and write the keys of docs/stores/etcd.md",
        ),
        Code::InvalidArgument if message.contains("user name is empty") => made(
            ErrorKind::Denied,
            "this etcd requires a login: write etcd://user:password@host",
        ),
        Code::InvalidArgument if message.contains("authentication failed") => {
            made(ErrorKind::Denied, "check the user and the password")
        }
        Code::ResourceExhausted if message.contains("space") => made(
            ErrorKind::Unreachable,
            "the database is full and refuses writes: compact and defragment it, clear the alarm, \
             raise --quota-backend-bytes",
        ),
        Code::ResourceExhausted => made(ErrorKind::Unreachable, "the server is overloaded"),
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => made(ErrorKind::Internal, ""),
        // The request may have arrived.
        _ => made(ErrorKind::Unreachable, "").with_effect(Effect::Possible),
    }
}

/// The error for a reply that no etcd sends.
pub(crate) fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Corrupt, "the reply does not fit the request")
        .with_advice("does something other than etcd answer on this connection?")
}
