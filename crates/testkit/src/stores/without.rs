//! A store that can do less.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{
    Admin, Capability, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView,
    ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Suspicions, Wakes,
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
    inner: Arc<dyn Admin>,
    info: StoreInfo,
}

impl Without {
    /// The same store, less one capability.
    pub fn new(inner: Arc<dyn Admin>, capability: Capability) -> Self {
        let info = less(inner.info().clone(), capability);
        Self { inner, info }
    }
}

/// The description of a store that lacks one capability.
pub(crate) fn less(mut info: StoreInfo, capability: Capability) -> StoreInfo {
    info.capabilities = info.capabilities.without(capability);
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

    fn suspicions(&self) -> Suspicions {
        self.inner.suspicions()
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

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl Admin for Without {
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
}
