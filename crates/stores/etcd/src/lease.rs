//! One lease, and what is known about its life.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::BootTime;

/// A lease at etcd.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// A second one, longer by the lock-delay: what hangs on it outlives the first.
    pub(crate) companion: Option<i64>,
    /// What it was asked for.
    pub(crate) length: Length,
    ttl: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// When the last request that was answered with "it lives" was sent.
    sent: BootTime,
    /// The term in which that was said.
    term: u64,
    dead: bool,
}

/// Whole seconds of a lease, and of the lock-delay behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Length(pub(crate) u64, pub(crate) u64);

impl Lease {
    pub(crate) fn new(
        id: i64,
        companion: Option<i64>,
        length: Length,
        ttl: Duration,
        (sent, term): (BootTime, u64),
    ) -> Self {
        let dead = false;
        let state = Mutex::new(State { sent, term, dead });
        Self {
            id,
            companion,
            length,
            ttl,
            state,
        }
    }

    /// It was said in this term, to a request that was sent then, that it lives.
    pub(crate) fn lives(&self, sent: BootTime, term: u64) {
        let mut state = self.state();
        if sent > state.sent {
            (state.sent, state.term) = (sent, term);
        }
    }

    /// It has ended.
    pub(crate) fn dies(&self) {
        self.state().dead = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last word about it: until when it lives, said in which term.
    pub(crate) fn word(&self) -> (BootTime, u64) {
        let state = self.state();
        (state.sent + self.ttl, state.term)
    }

    pub(crate) fn until(&self) -> BootTime {
        self.word().0
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Whether claims with this lease and lock-delay hang on it.
    pub(crate) fn is_for(&self, lease: Duration, delay: Duration) -> bool {
        self.length == Length::of(lease, delay)
    }
}

impl Length {
    pub(crate) fn of(lease: Duration, delay: Duration) -> Self {
        let spare = (lease / 8).clamp(Duration::from_secs(1), Duration::from_secs(5));
        Self(seconds(lease + spare), seconds(delay))
    }
}

/// Up to the next whole second.
pub(crate) fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}
