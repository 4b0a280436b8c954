//! A clock that a test drives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::BootTime;
use super::timers::{Ring, Timers};

/// The hand of a manual clock. See [`Clock::manual`](super::Clock::manual).
///
/// ```
/// # clinch::blocking::block_on(async {
/// use clinch::{Clinch, Clock, store::memory::MemoryStore};
/// use std::{sync::Arc, time::Duration};
/// let (clock, hand) = Clock::manual();
/// let context = clinch::store::OpenContext { clock, ..Clinch::context("app")? };
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
        // Not zero: code that takes a lease off the current moment must not hit the start of time.
        let start = 1_000_000 * 1_000_000_000;
        Self {
            now: AtomicU64::new(start),
            timers: Arc::new(Timers::new(Box::new(NoRing))),
        }
    }

    /// The current moment.
    pub fn now(&self) -> BootTime {
        #[cfg(test)]
        crate::explore::hook::look();
        BootTime(self.now.load(Ordering::SeqCst))
    }

    /// Moves the clock on and wakes the sleepers whose time has come.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let now = self.now.fetch_add(nanos, Ordering::SeqCst) + nanos;
        self.timers.fire(BootTime(now));
    }

    /// The first moment at which somebody wants to be woken.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.timers.next()
    }

    pub(super) fn timers(&self) -> Arc<Timers> {
        self.timers.clone()
    }
}

#[derive(Debug)]
struct NoRing;

impl Ring for NoRing {
    fn arm(&self, _at: BootTime) {}
    fn wait(&self) {}
}
