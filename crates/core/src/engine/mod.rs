//! What stands between the API and a store: written once, for every store.
//!
//! - [`acquire`]: the first attempt runs in the caller's task, so an uncontended lock costs no
//!   thread hop; everything that waits, or whose outcome is unknown, goes to a driver on the keeper.
//! - [`drive`]: the driver: repeats a queued claim on hints and on a slow poll, hands the grant to a
//!   waiter, or withdraws it when nobody waits any more.
//! - [`attempt`]: a claim in the caller's task; [`open`]: all of them, for [`closing`].
//! - [`lane`]: where the claims of this process on one name queue, and holds are handed over.
//! - [`hold`]: a grant with its deadline; [`tenure`]: one guard's turn of it.
//! - [`renew`]: the renewal schedule of all holds of a client; [`extend`]: the renewals themselves.
//! - [`leave`]: the end of a tenure: hand-over or release.

mod acquire;
mod attempt;
mod closing;
mod drive;
mod extend;
mod heard;
mod hold;
mod lane;
mod lanes;
mod leave;
mod open;
mod publish;
mod renew;
mod settings;
mod tasks;
mod tenure;

use std::sync::Arc;

pub(crate) use acquire::How;
pub(crate) use hold::Hold;
pub(crate) use lane::{Lane, LaneKey};
pub use settings::{DEFAULT_LEASE, HandOver, renew_after, valid_for};
pub(crate) use settings::{Settings, backoff, patient};
pub use tenure::Status;
pub(crate) use tenure::Tenure;

use crate::store::{Capability, Claim, OpenContext, Store, StoreInfo};
use crate::{Clock, Error, ErrorKind, Identity, LostReason, Name, OwnerId, Result};

/// One client of one store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) identity: Arc<Identity>,
    pub(crate) settings: Settings,
    /// The stores of this build, to name those that can do what this one cannot.
    peers: Vec<StoreInfo>,
    pub(crate) renewer: renew::Renewer,
    pub(crate) tasks: tasks::Tasks,
    lanes: lanes::Lanes,
    open: open::Open,
    closing: closing::Closing,
}

/// A claim as the API describes it, before it has a request id.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) key: LaneKey,
    pub(crate) owner: OwnerId,
    pub(crate) fair: bool,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        context: OpenContext,
        settings: Settings,
        peers: Vec<StoreInfo>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock: context.clock,
            identity: context.identity,
            settings,
            peers,
            renewer: renew::Renewer::default(),
            tasks: tasks::Tasks::default(),
            lanes: lanes::Lanes::default(),
            open: open::Open::default(),
            closing: closing::Closing::default(),
        })
    }

    /// The store's name in errors.
    pub(crate) fn scheme(&self) -> &'static str {
        self.store.info().scheme
    }

    /// Refuses, before any I/O, what the store cannot do.
    pub(crate) fn require(&self, capability: Capability) -> Result<()> {
        let info = self.store.info();
        if info.capabilities.has(capability) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("this store has no {capability}"),
        )
        .with_store(info.scheme)
        .with_advice(self.who_has(capability)))
    }

    /// The stores of this build that have a capability.
    fn who_has(&self, capability: Capability) -> String {
        let able = |store: &&StoreInfo| store.capabilities.has(capability);
        let names: Vec<&str> = self
            .peers
            .iter()
            .filter(able)
            .map(|store| store.scheme)
            .collect();
        match names.as_slice() {
            [] => "`clinch stores` shows which stores have it".to_owned(),
            names => format!("these have it: {}", names.join(", ")),
        }
    }

    /// Adds store and name to an error that a store reported without them.
    pub(crate) fn explain(&self, error: Error, name: &Name) -> Error {
        let error = match error.store() {
            None => error.with_store(self.scheme()),
            Some(_) => error,
        };
        match error.name() {
            None => error.with_name(name.as_str()),
            Some(_) => error,
        }
    }

    /// A claim with a fresh request id.
    pub(crate) fn claim(&self, key: &LaneKey, owner: &OwnerId, queue: bool) -> Claim {
        Claim {
            name: key.name.clone(),
            request: self.identity.request(),
            owner: owner.clone(),
            client: self.identity.info().clone(),
            units: key.units,
            limit: key.limit,
            lease: key.lease,
            lock_delay: key.lock_delay,
            label: key.label.clone(),
            value: key.value.clone(),
            queue,
        }
    }

    /// Holds of this very client that it has evicted: no need to learn that from a renewal.
    pub(crate) fn evicted(&self, name: &Name, seqs: &[u64]) {
        for hold in self.renewer.holds() {
            if hold.spi.name == *name && seqs.contains(&hold.spi.seq) {
                hold.lose(LostReason::Evicted);
            }
        }
    }

    /// What an engine that nobody uses should not have: lanes, holds to renew, tasks.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = self.lanes.describe();
        left.extend(self.open.describe());
        let holds = self.renewer.holds();
        let text = |hold: &Arc<Hold>| format!("a hold to renew: {:?}", hold.spi);
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
        if self.is_ours() {
            self.renewer.stop();
        }
    }
}
