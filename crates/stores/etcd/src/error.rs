//! Errors of etcd, and what they mean for a lock.

use clinch_core::{Effect, Error, ErrorKind};
use tonic::{Code, Status};

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// What the server, or the connection to it, says.
    Theirs(Status, String),
    Ours(Error),
}

impl Trouble {
    /// The request named a lease that is not there (any more); nothing was changed.
    pub(crate) fn is_lease_not_found(&self) -> bool {
        matches!(self, Self::Theirs(status, _)
            if status.code() == Code::NotFound && status.message().contains("lease not found"))
    }

    /// The lease that was to be granted is there: an earlier request has arrived.
    pub(crate) fn is_lease_there(&self) -> bool {
        matches!(self, Self::Theirs(status, _)
            if status.code() == Code::FailedPrecondition && status.message().contains("exists"))
    }

    /// The token of the login is no longer good; nothing was changed.
    pub(crate) fn is_stale_login(&self) -> bool {
        matches!(self, Self::Theirs(status, _) if status.code() == Code::Unauthenticated
            || status.message().contains("invalid auth token")
            || status.message().contains("revision in header is old"))
    }

    /// Another member may do better.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::Theirs(status, _) => matches!(
                status.code(),
                Code::Unavailable
                    | Code::Unknown
                    | Code::Cancelled
                    | Code::Internal
                    | Code::DeadlineExceeded
            ),
            Self::Ours(error) => error.kind() == ErrorKind::Unreachable,
        }
    }

    pub(crate) fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Ours(error) => error.may_have_taken_effect(),
            Self::Theirs(status, to) => {
                let error = Error::from(Self::Theirs(status.clone(), to.clone()));
                error.may_have_taken_effect()
            }
        }
    }

    /// The error of something that was only asked.
    pub(crate) fn of_a_read(self) -> Error {
        Error::from(self).with_effect(Effect::None)
    }
}

impl From<Trouble> for Error {
    /// The error of something that was to be changed.
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Theirs(status, to) => sending(status, &to),
            Trouble::Ours(error) => error,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

fn sending(status: Status, to: &str) -> Error {
    let said = status.message();
    let made = |kind, advice: &str| {
        let error = Error::new(kind, format!("{to}: {said}"));
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
        Code::InvalidArgument if said.contains("user name is empty") => made(
            ErrorKind::Denied,
            "this etcd wants a login: write etcd://user:password@host",
        ),
        Code::InvalidArgument if said.contains("authentication failed") => {
            made(ErrorKind::Denied, "check the user and the password")
        }
        Code::ResourceExhausted if said.contains("space") => made(
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
        // It may have arrived.
        _ => made(ErrorKind::Unreachable, "").with_effect(Effect::Possible),
    }
}

/// A reply that no etcd gives.
pub(crate) fn strange() -> Error {
    Error::new(ErrorKind::Corrupt, "the reply does not fit the request")
        .with_advice("is there something between that is not etcd?")
}
