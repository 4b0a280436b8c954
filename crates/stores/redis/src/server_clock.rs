//! What time it is at a server, as far as its replies tell.
//!
//! It is an estimate, and nothing relies on it: a claim that is judged too late by a wrong one is refused with
//! the right time and sent again.

use std::sync::atomic::{AtomicI64, Ordering};

use clinch_core::Clock;

/// The estimate is behind by the way of the reply, so a later one counts. One that is earlier by this much is
/// believed: the clock was set back.
const SET_BACK: i64 = 1000;
/// 2020-01-01, from which the scripts count.
const EPOCH: i64 = 1_577_836_800_000;
const UNKNOWN: i64 = i64::MIN;

/// The clock of one server, in ms since 2020.
#[derive(Debug)]
pub(crate) struct ServerClock {
    /// How far it is ahead of the boot clock here.
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
    /// A reply has just come that says what time it was.
    pub(crate) fn heard(&self, now: u64) {
        let Ok(now) = i64::try_from(now) else { return };
        let ahead = now - boot();
        let before = self.ahead.load(Ordering::Relaxed);
        if before == UNKNOWN || ahead > before || ahead < before - SET_BACK {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// It is the clock of another server, which says what time it is in microseconds since 1970.
    pub(crate) fn begin(&self, micros: Option<&str>) {
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
        clock.heard(1_000_000);
        clock.heard(999_500);
        assert!((1_000_000..1_060_000).contains(&clock.now()));
        clock.heard(500_000);
        assert!((500_000..560_000).contains(&clock.now()));
        clock.heard(2_000_000);
        assert!((2_000_000..2_060_000).contains(&clock.now()));
        clock.begin(None);
        assert_eq!(clock.now(), 0);
        clock.begin(Some("1577836800500000"));
        assert!((500..60_500).contains(&clock.now()));
    }
}
