//! One line on a terminal that says what is being measured.

use std::io::{IsTerminal as _, Write as _};

/// The line on standard error, if that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            shown: std::io::stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(crate) fn say(&self, what: &str) {
        if self.shown {
            let mut err = std::io::stderr().lock();
            // Ignored: there is nowhere to report it.
            let _ = write!(err, "\r\x1b[Kmeasuring {what} ...").and_then(|()| err.flush());
        }
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
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
