//! One lease, and until when it is confirmed to live.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::BootTime;
use clinch_kit::lock;

/// A lease at etcd.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// The delay lease: longer by the lock-delay, so that delay keys outlive this lease.
    pub(crate) delay_lease: Option<i64>,
    /// The length that was requested.
    pub(crate) length: Length,
    ttl: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// When the last confirmed request was sent.
    sent: BootTime,
    /// The term of its reply.
    term: u64,
    dead: bool,
}

/// The last confirmation of a lease. It counts only with a proof of the term: see `Leases::ensure`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed {
    /// Until when the lease lives.
    pub(crate) until: BootTime,
    /// The term of the reply.
    pub(crate) term: u64,
}

/// Whole seconds of a lease, and of the lock-delay after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Length {
    pub(super) lease: u64,
    pub(super) delay: u64,
}

impl Lease {
    pub(super) fn new(
        id: i64,
        delay_lease: Option<i64>,
        length: Length,
        ttl: Duration,
        (sent, term): (BootTime, u64),
    ) -> Self {
        let dead = false;
        let state = Mutex::new(State { sent, term, dead });
        Self {
            id,
            delay_lease,
            length,
            ttl,
            state,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A reply of this term, to a request sent at this time, says that the lease lives.
    pub(super) fn confirm(&self, sent: BootTime, term: u64) {
        let mut state = self.state();
        if sent > state.sent {
            (state.sent, state.term) = (sent, term);
        }
    }

    pub(super) fn set_dead(&self) {
        self.state().dead = true;
    }

    pub(crate) fn confirmed(&self) -> Confirmed {
        let state = self.state();
        Confirmed {
            until: state.sent + self.ttl,
            term: state.term,
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Whether claims with this lease and lock-delay use it.
    pub(crate) fn is_for(&self, lease: Duration, delay: Duration) -> bool {
        self.length == Length::of(lease, delay)
    }
}

impl Length {
    /// The lease at etcd is a little longer than its claims, so that a claim within that time needs no
    /// keep-alive.
    pub(super) fn of(lease: Duration, delay: Duration) -> Self {
        let spare = (lease / 8).clamp(Duration::from_secs(1), Duration::from_secs(5));
        Self {
            lease: seconds(lease + spare),
            delay: seconds(delay),
        }
    }
}

/// Rounds up to whole seconds.
pub(crate) fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}
