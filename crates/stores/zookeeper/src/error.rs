//! Errors of ZooKeeper, and what they mean for a lock.

use clinch_core::{Effect, Error, ErrorKind};
use zookeeper_client::Error as Zk;

/// Whether the request may or may not have taken effect.
pub(crate) fn is_unknown(error: &Zk) -> bool {
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
pub(crate) fn is_dead(error: &Zk) -> bool {
    matches!(error, Zk::SessionExpired | Zk::ClientClosed | Zk::NoHosts)
}

/// An error of a request.
pub(crate) fn sending(error: Zk) -> Error {
    let kind = match &error {
        Zk::NoAuth | Zk::AuthFailed | Zk::InvalidAcl => ErrorKind::Denied,
        Zk::NotReadOnly | Zk::Throttled | Zk::QuotaExceeded => ErrorKind::Unreachable,
        error if is_unknown(error) || is_dead(error) => ErrorKind::Unreachable,
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
    let made = match is_unknown(&error) || is_dead(&error) {
        true => made.with_effect(Effect::Possible),
        false => made,
    };
    made.with_source(error)
}

/// An error before any request had left.
pub(crate) fn connecting(error: Zk, servers: &str) -> Error {
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

/// The store was closed.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed")
}
