//! An estimate of a server's clock, from its replies.
//!
//! Safety does not depend on it: a claim that a wrong estimate makes too late is refused with the right
//! time and sent again.

use std::sync::atomic::{AtomicI64, Ordering};

use clinch_core::Clock;

/// An estimate is behind by the reply's travel time, so a later one replaces it. An earlier one replaces it
/// only if the difference exceeds this: then the clock was set back.
const SET_BACK: i64 = 1000;
/// 2020-01-01 in Unix milliseconds, the epoch of the scripts.
const EPOCH: i64 = 1_577_836_800_000;
const UNKNOWN: i64 = i64::MIN;

/// The clock of one server, in ms since 2020.
#[derive(Debug)]
pub(crate) struct ServerClock {
    /// Its offset from the boot clock of this machine.
    ahead: AtomicI64,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self {
            ahead: AtomicI64::new(UNKNOWN),
        }
    }
}

impl ServerClock {
    /// Takes the time from a reply that has just arrived.
    pub(crate) fn update(&self, now: u64) {
        let Ok(now) = i64::try_from(now) else { return };
        let ahead = now - boot();
        let before = self.ahead.load(Ordering::Relaxed);
        if before == UNKNOWN || ahead > before || ahead < before - SET_BACK {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// Starts over with the clock of another server, in microseconds since 1970.
    pub(crate) fn reset(&self, micros: Option<&str>) {
        let micros = micros.and_then(|micros| micros.parse::<i64>().ok());
        let ahead = micros.map_or(UNKNOWN, |micros| micros / 1000 - EPOCH - boot());
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// The time; 0 if it is not known.
    pub(crate) fn now(&self) -> u64 {
        match self.ahead.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            ahead => u64::try_from(boot() + ahead).unwrap_or(0),
        }
    }
}

/// The boot clock of this machine in ms.
fn boot() -> i64 {
    i64::try_from(Clock::boot().now().as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reply_is_not_a_clock_that_was_set_back() {
        let clock = ServerClock::default();
        assert_eq!(clock.now(), 0);
        clock.update(1_000_000);
        clock.update(999_500);
        assert!((1_000_000..1_060_000).contains(&clock.now()));
        clock.update(500_000);
        assert!((500_000..560_000).contains(&clock.now()));
        clock.update(2_000_000);
        assert!((2_000_000..2_060_000).contains(&clock.now()));
        clock.reset(None);
        assert_eq!(clock.now(), 0);
        clock.reset(Some("1577836800500000"));
        assert!((500..60_500).contains(&clock.now()));
    }
}
