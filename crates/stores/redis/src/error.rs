//! Errors of the driver and the server as errors of clinch.

use clinch_core::{Effect, Error, ErrorKind};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

/// An error before any request was sent.
pub(crate) fn connecting(error: RedisError, to: &str) -> Error {
    let (kind, advice) = match error.kind() {
        Kind::AuthenticationFailed => (ErrorKind::Denied, "check the user and the password"),
        _ if is_without_resp3(&error) => (
            ErrorKind::Unsupported,
            "clinch needs RESP3, so Redis 6 or newer, and a proxy in between must pass HELLO 3",
        ),
        Kind::InvalidClientConfig => (ErrorKind::Invalid, "check the URL"),
        Kind::Server(ServerErrorKind::NoPerm) => (
            ErrorKind::Denied,
            "the user needs the commands and channels of docs/stores/redis.md",
        ),
        _ if error.to_string().contains("DB index") => (
            ErrorKind::Invalid,
            "choose a database that the server has: `databases` in its settings, 0 to 15 by default",
        ),
        _ if is_denied(&error) => (ErrorKind::Denied, "check the user and the password"),
        _ => (ErrorKind::Unreachable, "is the server running there?"),
    };
    Error::new(kind, format!("cannot connect to {to}: {}", text(&error)))
        .with_advice(advice)
        .with_source(error)
}

/// An error of a request that was sent, or may have been.
pub(crate) fn sending(error: RedisError, to: &str) -> Error {
    let made = |kind, advice: &str| {
        let error = Error::new(kind, format!("{to}: {}", text(&error)));
        match advice {
            "" => error,
            advice => error.with_advice(advice),
        }
    };
    let translated = match error.kind() {
        Kind::Server(kind) => match kind {
            // The server has refused it, for now.
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::ReadOnly => made(ErrorKind::Unreachable, ""),
            ServerErrorKind::NoPerm => made(
                ErrorKind::Denied,
                "the user needs the commands and channels of docs/stores/redis.md",
            ),
            _ => made(ErrorKind::Internal, ""),
        },
        Kind::Extension => match error.code() {
            Some("OOM") => made(
                ErrorKind::Unreachable,
                "the server is out of memory and refuses writes: free some, or raise maxmemory",
            ),
            Some("MISCONF") => made(
                ErrorKind::Unreachable,
                "the server cannot save its data and refuses writes: look at its disk and its log",
            ),
            Some("NOREPLICAS") => made(
                ErrorKind::Unreachable,
                "the server has fewer replicas than min-replicas-to-write",
            ),
            Some("BUSY") => made(ErrorKind::Unreachable, "another script runs for too long"),
            Some("WRONGTYPE") => wrong_type(to),
            _ if is_denied(&error) => made(ErrorKind::Denied, "check the user and the password"),
            _ => made(ErrorKind::Internal, ""),
        },
        // It may have arrived.
        _ => made(ErrorKind::Unreachable, "").with_effect(Effect::Possible),
    };
    translated.with_source(error)
}

/// An error inside a script, from its text.
pub(crate) fn in_script(text: &str, to: &str) -> Error {
    if text.contains("WRONGTYPE") {
        return wrong_type(to);
    }
    if text.contains("another version of clinch") {
        return Error::new(ErrorKind::Corrupt, format!("{to}: {text}"))
            .with_advice("use the same version everywhere, or another namespace");
    }
    if text.contains("strict mode") {
        return Error::new(ErrorKind::Mismatch, format!("{to}: {text}")).with_advice(
            "give all clients the same longest=; to change it, stop them all and delete the key \
             clinch:NAMESPACE:epoch",
        );
    }
    if text.contains("NOPERM") || text.contains("can't run this command") {
        return Error::new(ErrorKind::Denied, format!("{to}: {text}"))
            .with_advice("the user needs the commands and channels of docs/stores/redis.md");
    }
    let temporary = ["OOM", "READONLY", "MISCONF", "NOREPLICAS"];
    let kind = match temporary.iter().any(|code| text.contains(code)) {
        true => ErrorKind::Unreachable,
        false => ErrorKind::Internal,
    };
    Error::new(kind, format!("{to}: {text}"))
}

/// A grant or a renewal that too few replicas have: it may stand, but cannot be relied on.
pub(crate) fn unreplicated(text: String) -> Error {
    Error::new(ErrorKind::Unreachable, text)
        .with_effect(Effect::Possible)
        .with_advice("look at the replicas, or require fewer with wait=N")
}

/// A reply that is not one of our scripts.
pub(crate) fn unexpected(to: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{to}: the reply is not one of our script"),
    )
    .with_advice("is there something between that is not Redis?")
}

fn wrong_type(to: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{to}: a key of this lock holds a value of another kind"),
    )
    .with_advice("something else writes keys of this name: use another namespace, or database")
}

pub(crate) fn is_denied(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

/// Whether the connection cannot be used any more.
pub(crate) fn is_broken(error: &RedisError) -> bool {
    match error.kind() {
        Kind::Io | Kind::Parse | Kind::Client => true,
        // It was a master when we connected.
        Kind::Server(ServerErrorKind::ReadOnly) => true,
        _ => error.is_unrecoverable_error(),
    }
}

/// The driver's message, on one line.
fn text(error: &RedisError) -> String {
    let parts: Vec<_> = error
        .to_string()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    parts.join(" ")
}

/// Whether the server, or a proxy before it, does not support RESP3.
fn is_without_resp3(error: &RedisError) -> bool {
    let text = text(error);
    error.kind() == Kind::RESP3NotSupported
        || text.contains("NOPROTO")
        || text.contains("unknown command") && text.contains("HELLO")
}
