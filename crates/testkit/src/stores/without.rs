//! A store that can do less.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{
    Capability, Claim, ClaimReply, Doubts, Events, Evicted, Finding, Freshness, Hold, LockView,
    ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Name, Result};

/// Takes one capability away from a store, so that its refusal can be tested.
///
/// ```
/// use clinch_core::{Clinch, store::{Capability, Store}};
/// use clinch_testkit::stores::Without;
/// let store = Without::new(Clinch::memory().store().clone(), Capability::Events);
/// let capabilities = store.info().capabilities;
/// assert!(!capabilities.events && capabilities.queue);
/// ```
#[derive(Debug)]
pub struct Without {
    inner: Arc<dyn Store>,
    info: StoreInfo,
}

impl Without {
    /// The same store, less one capability.
    pub fn new(inner: Arc<dyn Store>, capability: Capability) -> Self {
        let info = less(inner.info().clone(), capability);
        Self { inner, info }
    }
}

/// The description of a store that lacks one capability.
pub(crate) fn less(mut info: StoreInfo, capability: Capability) -> StoreInfo {
    let has = &mut info.capabilities;
    *match capability {
        Capability::Shared => &mut has.shared,
        Capability::Semaphores => &mut has.semaphores,
        Capability::Queue => &mut has.queue,
        Capability::LockDelay => &mut has.lock_delay,
        Capability::Tokens => &mut has.tokens,
        Capability::Predecessor => &mut has.predecessor,
        Capability::Values => &mut has.values,
        Capability::List => &mut has.list,
        Capability::Events => &mut has.events,
        Capability::Evict => &mut has.evict,
    } = false;
    info
}

#[async_trait]
impl Store for Without {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.inner.claim(claim).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.inner.wakes(claim)
    }

    fn doubts(&self) -> Doubts {
        self.inner.doubts()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.inner.renew(renewals).await
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.inner.release(hold).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.inner.withdraw(claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.inner.check(name, seq).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.inner.list(prefix).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.inner.inspect(name).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.inner.events(prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.inner.evict(name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.inner.doctor().await
    }

    fn operations(&self) -> u64 {
        self.inner.operations()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
