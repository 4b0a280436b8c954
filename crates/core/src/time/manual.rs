//! A clock that tests advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::BootTime;
use super::timers::{Alarm, Timers};

/// Handle that advances a manual clock. See [`Clock::manual`](super::Clock::manual).
///
/// ```
/// # clinch::blocking::block_on(async {
/// use clinch::{Clinch, Clock, store::memory::MemoryStore};
/// use std::{sync::Arc, time::Duration};
/// let (clock, hand) = Clock::manual();
/// let context = Clinch::context("app")?.with_clock(clock);
/// let clinch = Clinch::builder(Arc::new(MemoryStore::new(context.clone())), context).build();
/// let guard = clinch.lock("a").lease(Duration::from_secs(5)).acquire().await?;
/// hand.advance(Duration::from_secs(6)); // the process was suspended, say
/// assert!(!guard.is_valid());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    timers: Arc<Timers>,
}

impl ManualClock {
    pub(super) fn new() -> Self {
        // Not zero: a lease subtracted from the current moment must not reach the start of time.
        let start = 1_000_000 * 1_000_000_000;
        Self {
            now: AtomicU64::new(start),
            timers: Arc::new(Timers::new(Box::new(NoAlarm))),
        }
    }

    /// The current moment.
    pub fn now(&self) -> BootTime {
        #[cfg(test)]
        crate::explore::hook::count_clock_read();
        BootTime(self.now.load(Ordering::SeqCst))
    }

    /// Advances the clock and wakes the tasks whose deadline has come.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let now = self.now.fetch_add(nanos, Ordering::SeqCst) + nanos;
        self.timers.fire(BootTime(now));
    }

    /// The first deadline of a sleeping task.
    #[cfg(test)]
    pub(crate) fn next_deadline(&self) -> Option<BootTime> {
        self.timers.next_deadline()
    }

    pub(super) fn timers(&self) -> Arc<Timers> {
        self.timers.clone()
    }
}

#[derive(Debug)]
struct NoAlarm;

impl Alarm for NoAlarm {
    fn arm(&self, _at: BootTime) {}
    fn wait(&self) {}
}
