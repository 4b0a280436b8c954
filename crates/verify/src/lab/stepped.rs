//! A server's wall clock that goes forward and comes back.

use std::time::Duration;

use clinch::{BootTime, Clock};

/// What is known of such a clock. Tokens keep near it, so that they rise even after a loss of data;
/// that is not promised while the clock is behind what it has shown before.
#[derive(Debug)]
pub(super) struct Stepped {
    clock: Clock,
    by: Duration,
    /// When it will have caught up.
    behind_until: Option<BootTime>,
}

impl Stepped {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::boot(),
            by: Duration::ZERO,
            behind_until: None,
        }
    }

    /// It went away from the right time by so much.
    pub(super) fn away(&mut self, by: Duration) {
        self.by = by;
    }

    /// How far it has to go to be right again.
    pub(super) fn by(&self) -> Duration {
        self.by
    }

    /// It has shown what is so much later than now.
    pub(super) fn behind(&mut self, by: Duration) {
        let caught_up = self.clock.now() + by;
        self.behind_until = self.behind_until.max(Some(caught_up));
    }

    /// Whether it shows what it has never shown before.
    pub(super) fn is_ahead(&self) -> bool {
        self.behind_until
            .is_none_or(|until| self.clock.now() > until)
    }
}
