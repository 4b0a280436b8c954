//! When a run of a wrong lock has shown enough.

use std::time::Duration;

use clinch::BootTime;

use crate::check::Property;
use crate::wrong::Wrong;

/// What a run of a wrong lock is to show. It ends when that was seen: the rest of its time would show
/// it again.
#[derive(Debug)]
pub(super) struct Enough {
    /// No grant for so long, where the fault is that nobody gets the lock any more. That is certain
    /// only at the end, when the faults are over and everybody still waits.
    silence: Option<Duration>,
    grants: u64,
    since: BootTime,
}

impl Enough {
    pub(super) fn new(wrong: Option<Wrong>, silence: Duration, now: BootTime) -> Self {
        let expected = wrong.and_then(Wrong::expected);
        let sticks = matches!(expected, Some(Property::Stuck | Property::LeftBehind));
        Self {
            silence: sticks.then_some(silence),
            grants: 0,
            since: now,
        }
    }

    /// Whether the run can end, now that there are so many grants, and that the fault was seen or
    /// not.
    pub(super) fn is_reached(&mut self, now: BootTime, grants: u64, caught: bool) -> bool {
        if grants != self.grants {
            (self.grants, self.since) = (grants, now);
        }
        let silent = now.since(self.since);
        caught || self.silence.is_some_and(|most| silent > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3);

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_was_caught_is_enough() {
        let mut enough = Enough::new(Some(Wrong::NoRenewal), MOST, at(0));
        assert!(!enough.is_reached(at(9), 0, false), "it does not stick");
        assert!(enough.is_reached(at(9), 0, true));
    }

    #[test]
    fn no_grant_for_long_is_enough_where_a_lock_sticks() {
        let mut enough = Enough::new(Some(Wrong::SetnxExpire), MOST, at(0));
        assert!(!enough.is_reached(at(3), 0, false));
        assert!(!enough.is_reached(at(4), 1, false), "a grant");
        assert!(!enough.is_reached(at(7), 1, false));
        assert!(enough.is_reached(at(8), 1, false));
    }

    #[test]
    fn a_lock_that_is_right_is_watched_all_the_time() {
        for lock in [None, Some(Wrong::Right)] {
            assert!(!Enough::new(lock, MOST, at(0)).is_reached(at(1000), 0, false));
        }
    }
}
