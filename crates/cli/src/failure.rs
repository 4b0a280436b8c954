//! What ends a command early: an exit status, and one line that says what is wrong and what to do.

use std::io;

use clinch::{Error, ErrorKind};
use serde::Serialize;

use crate::output::plain;

/// The exit statuses that are the command's own; documented in `docs/command.md`.
pub(crate) mod exit {
    /// Done.
    pub(crate) const OK: i32 = 0;
    /// The answer is no: a stale sequencer, nothing to evict, a broken promise found by `doctor`.
    pub(crate) const NO: i32 = 1;
    /// The command line, or what it asks of the store, is wrong; nothing was changed.
    pub(crate) const USAGE: i32 = 2;
    /// The store cannot be used: unreachable, access refused, not clinch's data.
    pub(crate) const UNAVAILABLE: i32 = 69;
    /// A fault of clinch itself.
    pub(crate) const INTERNAL: i32 = 70;
    /// Standard output cannot be written.
    pub(crate) const OUTPUT: i32 = 74;
    /// The lock was not acquired in time.
    pub(crate) const NOT_ACQUIRED: i32 = 75;
    /// The lock was lost while it was needed.
    pub(crate) const LOST: i32 = 76;
    /// The command was found and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: i32 = 126;
    /// The command was not found.
    pub(crate) const NOT_FOUND: i32 = 127;
    /// Added to a signal's number.
    pub(crate) const SIGNAL: i32 = 128;
}

/// [`exit::INTERNAL`] as the type that a process ends with.
pub(crate) const INTERNAL_STATUS: u8 = 70;

/// The result of a command: an exit status, or a failure to be reported.
pub(crate) type Outcome = Result<i32, Failure>;

/// A failure that is reported once, at the top, as a line or as JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    #[serde(skip)]
    code: i32,
    kind: &'static str,
    message: String,
    store: Option<String>,
    name: Option<String>,
    advice: Option<String>,
    may_have_taken_effect: bool,
    /// Nobody reads what we would say.
    #[serde(skip)]
    silent: bool,
}

impl Failure {
    /// A failure with this status, kind (for `--json`) and message.
    pub(crate) fn new(code: i32, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            message: message.into(),
            store: None,
            name: None,
            advice: None,
            may_have_taken_effect: false,
            silent: false,
        }
    }

    /// Wrong usage: nothing was changed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, "usage", message)
    }

    /// Says what would be right.
    pub(crate) fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Names the lock.
    pub(crate) fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether another try may do better.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.kind == ErrorKind::Unreachable.as_str()
    }

    /// Says it on standard error, and gives the exit status.
    pub(crate) fn report(&self, json: bool) -> i32 {
        if !self.silent {
            crate::output::complain(&self.to_text(json));
        }
        self.code
    }

    /// The failure as one line, for people or as JSON.
    pub(crate) fn to_text(&self, json: bool) -> String {
        match json {
            true => self.json(),
            false => self.to_line(),
        }
    }

    /// The failure as one line for people.
    pub(crate) fn to_line(&self) -> String {
        let mut line = String::from("clinch: ");
        if let Some(store) = &self.store {
            line += store;
            line += ": ";
        }
        line += &self.message;
        if let Some(name) = &self.name {
            line += &format!(" (lock {name:?})");
        }
        if self.may_have_taken_effect {
            line += "; it may have taken effect";
        }
        if let Some(advice) = &self.advice {
            line += "; ";
            line += advice;
        }
        plain(&line).into_owned()
    }

    fn json(&self) -> String {
        serde_json::json!({ "error": self }).to_string()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            code: status(error.kind()),
            kind: error.kind().as_str(),
            message: error.message().to_owned(),
            store: error.store().map(str::to_owned),
            name: error.name().map(str::to_owned),
            advice: error.advice().map(str::to_owned),
            may_have_taken_effect: error.may_have_taken_effect(),
            silent: false,
        }
    }
}

/// A failure to write standard output. A reader that has gone (`| head -1`) is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let mut failure = Self::new(exit::OK, "output", "nobody reads the output");
            failure.silent = true;
            return failure;
        }
        let message = format!("cannot write the output: {error}");
        Self::new(exit::OUTPUT, "output", message)
    }
}

fn status(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Mismatch => exit::USAGE,
        ErrorKind::WouldDeadlock => exit::USAGE,
        ErrorKind::Unreachable | ErrorKind::Denied | ErrorKind::Corrupt | ErrorKind::Closed => {
            exit::UNAVAILABLE
        }
        ErrorKind::Lost => exit::LOST,
        _ => exit::INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_error_reaches_the_user() {
        let error = Error::new(ErrorKind::Unreachable, "no answer")
            .with_store("redis")
            .with_name("a\nb")
            .with_advice("start it")
            .with_effect(clinch::Effect::Possible);
        let failure = Failure::from(error);
        assert_eq!(failure.code, exit::UNAVAILABLE);
        assert_eq!(
            failure.to_line(),
            r#"clinch: redis: no answer (lock "a\nb"); it may have taken effect; start it"#
        );
        let json: serde_json::Value = serde_json::from_str(&failure.json()).unwrap();
        assert_eq!(json["error"]["kind"], "unreachable");
        assert_eq!(json["error"]["may_have_taken_effect"], true);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.report(false), exit::OK);
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.code, exit::OUTPUT);
    }
}
