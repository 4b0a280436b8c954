//! What a store is opened with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Clock, Identity};

/// What a store is opened with.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, Clock};
/// let (clock, hand) = Clock::manual(); // a test drives the time
/// let context = Clinch::context("billing")?.with_clock(clock);
/// let before = context.clock.now();
/// hand.advance(std::time::Duration::from_secs(1));
/// assert_eq!(context.clock.now().since(before).as_secs(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenContext {
    /// The prefix that separates applications in one store; already validated.
    pub namespace: Arc<str>,
    /// The client that opens the store.
    pub identity: Arc<Identity>,
    /// The clock for leases that the store itself measures.
    pub clock: Clock,
    /// The store counts its requests to the engine here.
    pub operations: Operations,
}

impl OpenContext {
    /// A new client of a namespace that was validated already.
    pub(crate) fn new(namespace: &str) -> Self {
        Self {
            namespace: Arc::from(namespace),
            identity: Arc::new(Identity::new()),
            clock: Clock::boot(),
            operations: Operations::default(),
        }
    }

    /// The same context for another client.
    #[must_use]
    pub fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self {
            identity,
            operations: Operations::default(),
            ..self
        }
    }

    /// The same client with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

/// Counts the requests (or transactions) that a client sends to the engine. Clones share the count.
///
/// ```
/// use clinch_core::store::Operations;
/// let operations = Operations::default();
/// operations.clone().add(2);
/// assert_eq!(operations.count(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Operations(Arc<AtomicU64>);

impl Operations {
    /// Adds to the count.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
