//! Locks on ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
    StoreInfo, Suspicions, Wakes,
};
use clinch_core::{Name, Result};

use crate::config::Config;
use crate::core::Core;
use crate::info::INFO;
use crate::{claim, inspect, leave, renew};

/// How long a close waits for the servers to acknowledge the end of each session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Locks on ZooKeeper: an ephemeral sequential node for each claim.
///
/// ```
/// let info = clinch_zookeeper::ZooKeeperStore::describe();
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct ZooKeeperStore {
    info: StoreInfo,
    pub(crate) core: Arc<Core>,
}

impl ZooKeeperStore {
    pub(crate) async fn connect(config: Arc<Config>, context: &OpenContext) -> Result<Self> {
        let core = Core::connect(config, context).await?;
        let mut info = Self::describe();
        let longest = core.sessions.base().await?.timeout;
        info.limits.max_lease = core.sessions.config.lease_in(longest);
        Ok(Self { info, core })
    }

    /// What the store is, without opening it. Its longest lease is that of an ensemble with default
    /// settings; an open store has the one of its ensemble.
    ///
    /// ```
    /// assert_eq!(clinch_zookeeper::ZooKeeperStore::describe().scheme, "zookeeper");
    /// ```
    pub fn describe() -> StoreInfo {
        INFO
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        claim::claim(&self.core, claim).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.core.wakes.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        renew::renew(&self.core, renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        self.core.suspicions.register()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        leave::release(&self.core, hold).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        leave::withdraw(&self.core, claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        inspect::check(&self.core, name, seq).await
    }

    async fn close(&self) -> Result<()> {
        // After the timeout, the servers remove what is left when the sessions expire.
        for session in self.core.close() {
            tokio::select! {
                () = session.ended() => {}
                () = self.core.clock.sleep(CLOSE_TIMEOUT) => {}
            }
        }
        Ok(())
    }
}

impl Drop for ZooKeeperStore {
    fn drop(&mut self) {
        self.core.close();
    }
}
