//! How much of a run may be excused.

use std::time::Duration;

use clinch::{BootTime, Clock};

/// A run says nothing about what it excuses, so that is kept below a tenth of it: in hundredths.
const SHARE: u32 = 8;
/// A shorter run meets every fault once, whatever that excuses.
const SHORT: Duration = Duration::from_secs(100);

/// Faults that excuse something are left out where they would be too much of the run.
#[derive(Debug)]
pub(super) struct Budget {
    clock: Clock,
    began: BootTime,
    span: Duration,
    lease: Duration,
    spent: Duration,
}

impl Budget {
    pub(super) fn new(clock: &Clock, span: Duration, lease: Duration) -> Self {
        Self {
            clock: clock.clone(),
            began: clock.now(),
            span,
            lease,
            spent: Duration::ZERO,
        }
    }

    /// Whether there may be one more. In the first round the whole run counts, then the time so far.
    pub(super) fn admits(&self, first_round: bool) -> bool {
        let so_far = self.clock.now().since(self.began);
        let of = match first_round {
            true if self.span < SHORT => return true,
            true => self.span,
            false => so_far,
        };
        (self.spent + self.lease * 2) * 100 <= of * SHARE
    }

    /// So much was excused, and a lease after it; nothing if it is `None`.
    pub(super) fn spend(&mut self, excused: Option<Duration>) {
        if let Some(excused) = excused {
            self.spent += excused + self.lease;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_excuses_less_than_a_tenth() {
        let (clock, hand) = Clock::manual();
        let second = Duration::from_secs(1);
        let mut budget = Budget::new(&clock, second * 1200, second);
        let mut excused = Duration::ZERO;
        for n in 0..600_u32 {
            hand.advance(second * 2);
            if budget.admits(n < 10) {
                budget.spend(Some(second));
                excused += second * 2;
            }
        }
        assert!(
            excused * 10 < second * 1200 && excused > second * 60,
            "{excused:?}"
        );
    }

    #[test]
    fn a_short_run_meets_all_of_them_once() {
        let (clock, _hand) = Clock::manual();
        let second = Duration::from_secs(1);
        let mut budget = Budget::new(&clock, second * 20, second);
        budget.spend(Some(second * 9));
        assert!(budget.admits(true) && !budget.admits(false));
    }
}
