//! Slots: the limit on claims at the store.

use std::sync::Arc;

use super::{Engine, LocalQueue};

/// The right to one claim at the store. Dropping it lets the local queue make the next claim.
#[derive(Debug)]
pub(crate) struct Slot {
    local_queue: Arc<LocalQueue>,
}

impl Slot {
    /// The queue must have counted the claim already.
    pub(super) fn new(local_queue: Arc<LocalQueue>) -> Self {
        Self { local_queue }
    }

    pub(super) fn local_queue(&self) -> &Arc<LocalQueue> {
        &self.local_queue
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.local_queue.engine()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // In a forked child, a copied mutex may stay locked for ever.
        if self.engine().is_own_process() {
            self.local_queue.end_claim();
        }
    }
}
