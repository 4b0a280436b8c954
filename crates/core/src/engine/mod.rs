//! The engine between the API and a store; written once, for every store.
//!
//! - [`acquire`]: the first request runs in the caller's task, so the engine adds no thread hop to an
//!   uncontended lock. A claim that waits, or whose outcome is unknown, goes to a driver.
//! - [`attempt`]: a claim in the caller's task. [`open_claims`]: the registry of these, for [`closing`].
//! - [`local_queue`]: callers of this process that want the same lock. [`local_wait`]: one caller's
//!   place in it. [`slot`]: the right to one claim at the store.
//! - [`driver`]: a task on the keeper that repeats a queued claim on wakes and on a slow poll, and gives
//!   the grant to a waiter. [`withdraw`]: ends a claim that no waiter needs any more.
//! - [`grant_bound`]: from when the lease of a pushed grant counts.
//! - [`hold`]: a grant with its deadline. [`local_hold`]: one owner's use of it.
//! - [`renewer`]: the renewal schedule of all holds. [`renewal_batch`]: one request to renew several.
//! - [`release`]: hand-over to a local waiter, or release at the store.
//! - [`settings`]: settings, safety margins, timeouts.

mod acquire;
mod attempt;
mod closing;
mod driver;
mod grant_bound;
mod hold;
mod local_hold;
mod local_queue;
mod local_queues;
mod local_wait;
mod open_claims;
mod publish;
mod release;
mod renewal_batch;
mod renewer;
mod settings;
mod slot;
mod tasks;
mod withdraw;

use std::sync::Arc;

pub(crate) use acquire::WaitPolicy;
pub(crate) use hold::Hold;
pub(crate) use local_hold::LocalHold;
pub use local_hold::Status;
pub(crate) use local_queue::{ClaimSpec, LocalQueue};
pub use settings::{DEFAULT_LEASE, HandOver, renew_after, valid_for};
pub(crate) use settings::{Settings, backoff, with_timeout};

use crate::store::{Admin, Claim, Layer, OpenContext, Operations, StoreInfo};
use crate::{Clock, Error, Identity, LostReason, Name, OwnerId};

/// One client of one store.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The store inside its layer.
    pub(crate) store: Arc<dyn Admin>,
    pub(crate) layer: Arc<Layer>,
    /// Requests that the store has sent.
    pub(crate) operations: Operations,
    pub(crate) clock: Clock,
    pub(crate) identity: Arc<Identity>,
    pub(crate) settings: Settings,
    pub(crate) renewer: renewer::Renewer,
    pub(crate) tasks: tasks::Tasks,
    local_queues: local_queues::LocalQueues,
    open_claims: open_claims::OpenClaims,
    closing: closing::Closing,
}

/// A claim as the API describes it; it gets a request id when it is sent.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRequest {
    pub(crate) spec: ClaimSpec,
    pub(crate) owner: OwnerId,
    pub(crate) fair: bool,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Admin>,
        context: OpenContext,
        settings: Settings,
        known_stores: Vec<StoreInfo>,
    ) -> Arc<Self> {
        let layer = Arc::new(Layer::new(store, known_stores));
        Arc::new(Self {
            store: layer.clone(),
            layer,
            clock: context.clock,
            identity: context.identity,
            operations: context.operations,
            settings,
            renewer: renewer::Renewer::default(),
            tasks: tasks::Tasks::default(),
            local_queues: local_queues::LocalQueues::default(),
            open_claims: open_claims::OpenClaims::default(),
            closing: closing::Closing::default(),
        })
    }

    /// The store's name in errors and spans.
    pub(crate) fn scheme(&self) -> &'static str {
        self.store.info().scheme
    }

    /// Adds store and name to an error that has none.
    pub(crate) fn explain(&self, error: Error, name: &Name) -> Error {
        self.layer.explain_name(error, name)
    }

    /// A claim with a fresh request id.
    pub(crate) fn new_claim(&self, spec: &ClaimSpec, owner: &OwnerId, queue: bool) -> Claim {
        Claim {
            name: spec.name.clone(),
            request: self.identity.request(),
            owner: owner.clone(),
            client: self.identity.info().clone(),
            units: spec.units,
            limit: spec.limit,
            lease: spec.lease,
            lock_delay: spec.lock_delay,
            label: spec.label.clone(),
            value: spec.value.clone(),
            queue,
        }
    }

    /// Marks this client's own holds lost that it has evicted itself, without waiting for a renewal.
    pub(crate) fn lose_evicted(&self, name: &Name, seqs: &[u64]) {
        for hold in self.renewer.holds() {
            if hold.store_hold.name == *name && seqs.contains(&hold.store_hold.seq) {
                hold.lose(LostReason::Evicted);
            }
        }
    }

    /// What an idle engine must not have: local queues, open claims, holds, tasks.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = self.local_queues.describe();
        left.extend(self.open_claims.describe());
        let holds = self.renewer.holds();
        let text = |hold: &Arc<Hold>| format!("a hold to renew: {:?}", hold.store_hold);
        left.extend(holds.iter().map(text));
        match self.tasks.running() {
            0 => {}
            running => left.push(format!("{running} tasks")),
        }
        left
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_own_process() {
            self.renewer.stop();
        }
    }
}
