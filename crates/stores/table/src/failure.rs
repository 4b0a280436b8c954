//! Why a request to the engine has no complete reply.

use clinch_core::{Effect, Error, ErrorKind};

/// A request that failed, as a dialect reports it.
///
/// ```
/// use clinch_core::{Error, ErrorKind};
/// use clinch_table::Failure;
/// let error = Error::new(ErrorKind::Unreachable, "deadlock found");
/// assert!(Failure::deadlock(error).is_conflict());
/// ```
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    /// Whether a copy of the request had no reply: it may have been applied, or may still arrive.
    pub unanswered: bool,
    /// The error for the caller.
    pub error: Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deadlock,
    Conflict,
    Other,
}

impl Failure {
    fn new(kind: Kind, unanswered: bool, error: Error) -> Self {
        Self {
            kind,
            unanswered,
            error,
        }
    }

    /// The engine rolled the statement back to end a deadlock. It has had no effect and may be sent
    /// again.
    pub fn deadlock(error: Error) -> Self {
        Self::new(Kind::Deadlock, false, error)
    }

    /// The engine rolled the statement back for another conflict: a lock that was waited for too
    /// long, or a row that has changed. It has had no effect and may be sent again.
    pub fn conflict(error: Error) -> Self {
        Self::new(Kind::Conflict, false, error)
    }

    /// The request was refused, or never sent: it has had no effect.
    pub fn refused(error: Error) -> Self {
        Self::new(Kind::Other, false, error)
    }

    /// The request may have been sent, and there is no reply. It may still take effect.
    pub fn unanswered(error: Error) -> Self {
        let error = error.with_effect(Effect::Possible);
        Self::new(Kind::Other, true, error)
    }

    /// Whether the statement was rolled back and may be sent again.
    pub fn is_conflict(&self) -> bool {
        self.kind != Kind::Other
    }

    /// Whether it was rolled back to end a deadlock.
    pub fn is_deadlock(&self) -> bool {
        self.kind == Kind::Deadlock
    }

    /// No reply from the server at `address`, and why.
    pub(crate) fn no_reply(address: &str, why: &str) -> Self {
        let text = format!("{address}: {why}");
        Self::unanswered(Error::new(ErrorKind::Unreachable, text))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::refused(error)
    }
}
