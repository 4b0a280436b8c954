//! One line on a terminal that says what is being measured.

use std::io::{IsTerminal as _, Write as _};

/// The line on standard error; nothing where no person looks.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            shown: std::io::stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(super) fn say(&self, what: &str) {
        if self.shown {
            let mut err = std::io::stderr().lock();
            // Nobody to tell when that fails.
            let _ = write!(err, "\r\x1b[Kmeasuring {what} ...").and_then(|()| err.flush());
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.shown {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
