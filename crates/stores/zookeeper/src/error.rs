//! Errors of the driver, and what they mean for a lock.

use clinch_core::{Effect, Error, ErrorKind};
use zookeeper_client::Error as Zk;

/// Whether the request may have been applied.
pub(crate) fn has_unknown_outcome(error: &Zk) -> bool {
    matches!(
        error,
        Zk::ConnectionLoss
            | Zk::Timeout
            | Zk::Custom(_)
            | Zk::UnexpectedError(_)
            | Zk::UnmarshalError { .. }
            | Zk::SessionMoved
    )
}

/// Whether the session has ended, and all its nodes with it.
pub(crate) fn ends_session(error: &Zk) -> bool {
    matches!(error, Zk::SessionExpired | Zk::ClientClosed | Zk::NoHosts)
}

/// The error of a request.
pub(crate) fn request_error(error: Zk) -> Error {
    let possible = has_unknown_outcome(&error) || ends_session(&error);
    let kind = match &error {
        Zk::NoAuth | Zk::AuthFailed | Zk::InvalidAcl => ErrorKind::Denied,
        Zk::NotReadOnly | Zk::Throttled | Zk::QuotaExceeded => ErrorKind::Unreachable,
        _ if possible => ErrorKind::Unreachable,
        _ => ErrorKind::Internal,
    };
    let made = Error::new(kind, format!("zookeeper: {error}"));
    let made = match &error {
        Zk::NoAuth | Zk::AuthFailed => {
            made.with_advice("check the user, the password and the ACLs of the nodes")
        }
        Zk::NotReadOnly => made.with_advice("the server has lost the majority of its ensemble"),
        Zk::QuotaExceeded => made.with_advice("a quota is set on this path: raise it"),
        _ => made,
    };
    let made = match possible {
        true => made.with_effect(Effect::Possible),
        false => made,
    };
    made.with_source(error)
}

/// The error of a connection, before any request was sent.
pub(crate) fn connect_error(error: Zk, servers: &str) -> Error {
    let (kind, advice) = match &error {
        Zk::NoAuth | Zk::AuthFailed => (ErrorKind::Denied, "check the user and the password"),
        Zk::BadArguments(_) => (ErrorKind::Invalid, "check the URL"),
        _ => (
            ErrorKind::Unreachable,
            "do the servers run there, and has the ensemble a majority?",
        ),
    };
    Error::new(kind, format!("cannot connect to {servers}: {error}"))
        .with_advice(advice)
        .with_source(error)
}

/// The error of a request that began before the store was closed.
pub(crate) fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed")
}
