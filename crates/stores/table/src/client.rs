//! What the parts of one store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::ClientId;

use crate::late_copies::LateCopies;
use crate::row_cache::RowCache;
use crate::{Dialect, Failure};

/// No reply is waited for less than this: servers do stall, and a new connection costs more.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// One client of the table.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) dialect: Arc<dyn Dialect>,
    pub(crate) id: ClientId,
    pub(crate) cache: Arc<RowCache>,
    pub(crate) late: LateCopies,
    pub(crate) highest: HighestSeq,
    pub(crate) conflicts: Conflicts,
}

impl Client {
    pub(crate) fn new(dialect: Arc<dyn Dialect>, id: ClientId) -> Arc<Self> {
        Arc::new(Self {
            id,
            cache: RowCache::new(dialect.clone()),
            late: LateCopies::new(dialect.timeout()),
            highest: HighestSeq::default(),
            conflicts: Conflicts::default(),
            dialect,
        })
    }

    /// How long a reply to a renewal of these leases is waited for: a hold must outlive a connection that
    /// has gone silent, so there must be time for another attempt.
    pub(crate) fn timeout(&self, leases: impl Iterator<Item = Duration>) -> Duration {
        let most = self.dialect.timeout();
        let shortest = leases.min().map(|lease| (lease / 4).max(LEAST_TIMEOUT));
        shortest.map_or(most, |timeout| timeout.min(most))
    }
}

/// The highest sequence number that this client has seen: a server that lost its data and whose clock is
/// behind must not grant a lower one.
#[derive(Debug, Default)]
pub(crate) struct HighestSeq(AtomicU64);

impl HighestSeq {
    pub(crate) fn saw(&self, seq: u64) {
        self.0.fetch_max(seq, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Statements that the engine rolled back and that were sent again.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    deadlocks: AtomicU64,
    others: AtomicU64,
}

impl Conflicts {
    pub(crate) fn count(&self, failure: &Failure) {
        let counter = match failure.is_deadlock() {
            true => &self.deadlocks,
            false => &self.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Deadlocks, and others.
    pub(crate) fn get(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.deadlocks), read(&self.others))
    }
}
