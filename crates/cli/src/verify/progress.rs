//! One line on a terminal that says how far a run is.

use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};

use clinch_verify::Progress;

/// The line on standard error; nothing where no person looks.
#[derive(Debug)]
pub(super) struct Line {
    shown: bool,
    seed: u64,
    drawn: Cell<bool>,
}

impl Line {
    pub(super) fn new(quiet: bool, seed: u64) -> Self {
        Self {
            shown: !quiet && std::io::stderr().is_terminal(),
            seed,
            drawn: Cell::new(false),
        }
    }

    /// Replaces the line.
    pub(super) fn say(&self, now: &Progress) {
        if !self.shown {
            return;
        }
        let left = match now.phase {
            "running" => format!("{} s left", now.left.as_secs()),
            phase => phase.to_owned(),
        };
        let mut err = std::io::stderr().lock();
        // Nobody to tell when that fails.
        let _ = write!(
            err,
            "\r\x1b[Kseed {}: {} operations, {} grants, {} faults, {} violations; {left}",
            self.seed, now.operations, now.grants, now.faults, now.violations,
        )
        .and_then(|()| err.flush());
        self.drawn.set(true);
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.drawn.take() {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}
