//! Locks on ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
    StoreInfo, Suspicions, Wakes,
};
use clinch_core::{Name, Result, keeper};

use crate::client::Client;
use crate::config::Config;
use crate::info::INFO;
use crate::{claim, cleanup, inspect, release, renew};

/// How long `close` waits for the end of each session to be acknowledged.
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
    pub(crate) client: Arc<Client>,
}

impl ZooKeeperStore {
    pub(crate) async fn connect(config: Arc<Config>, context: &OpenContext) -> Result<Self> {
        let client = Client::connect(config, context).await?;
        let mut info = Self::describe();
        let longest = client.sessions.base().await?.timeout;
        info.limits.max_lease = client.sessions.config.lease_in(longest);
        keeper::spawn(cleanup::run(client.clone()))?;
        Ok(Self { info, client })
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
        claim::claim(&self.client, claim).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.client.wakes.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        renew::renew(&self.client, renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        self.client.suspicions.register()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        release::release(&self.client, hold).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        release::withdraw(&self.client, claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        inspect::check(&self.client, name, seq).await
    }

    async fn close(&self) -> Result<()> {
        // After the timeout, the servers remove what is left when the sessions expire.
        for session in self.client.close() {
            tokio::select! {
                () = session.wait_ended() => {}
                () = self.client.clock.sleep(CLOSE_TIMEOUT) => {}
            }
        }
        Ok(())
    }
}

impl Drop for ZooKeeperStore {
    fn drop(&mut self) {
        self.client.close();
    }
}
