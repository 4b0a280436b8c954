//! Locks on ZooKeeper.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Doubts, Events, Evicted, Finding, Freshness, Hold, Limits,
    LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Error, MAX_NAME, Name, Result};

use crate::config::Config;
use crate::core::Core;
use crate::error::closed;
use crate::{claim, doctor, events, inspect, leave, promises, renew};

/// The shortest lease: shorter sessions are for no ensemble.
const MIN_LEASE: Duration = Duration::from_millis(200);
/// How long a close waits for the servers' word.
const FAREWELL: Duration = Duration::from_secs(2);

/// Locks on ZooKeeper: an ephemeral sequential node for each claim.
///
/// ```
/// let info = clinch_zookeeper::ZooKeeperStore::describe();
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct ZooKeeperStore {
    info: StoreInfo,
    core: Arc<Core>,
}

impl ZooKeeperStore {
    pub(crate) async fn connect(config: Arc<Config>, context: &OpenContext) -> Result<Self> {
        let core = Core::connect(config, context).await?;
        let mut info = Self::describe();
        let longest = core.sessions.base().await?.timeout;
        info.limits.max_lease = core.sessions.config.lease_in(longest);
        Ok(Self { info, core })
    }

    /// What the store is, without opening it. The longest lease is the one that fits into the
    /// longest session of an ensemble with default settings; an open store knows its own.
    ///
    /// ```
    /// assert_eq!(clinch_zookeeper::ZooKeeperStore::describe().scheme, "zookeeper");
    /// ```
    pub fn describe() -> StoreInfo {
        StoreInfo {
            scheme: "zookeeper",
            summary: promises::SUMMARY,
            capabilities: Capabilities::ALL,
            guarantees: promises::GUARANTEES,
            limits: Limits {
                min_lease: MIN_LEASE,
                max_lease: Duration::from_millis(30_400),
                lease_step: Duration::from_millis(1),
                max_name: MAX_NAME,
            },
        }
    }

    /// After `close`, claims may still be withdrawn and holds released, and nothing else.
    fn check_open(&self) -> Result<()> {
        match self.core.sessions.is_closed() {
            true => Err(closed()),
            false => Ok(()),
        }
    }
}

fn explain(error: Error) -> Error {
    error.or_store("zookeeper")
}

#[async_trait]
impl Store for ZooKeeperStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        claim::claim(&self.core, claim).await.map_err(explain)
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.core.wakes.register(claim.request)
    }

    fn doubts(&self) -> Doubts {
        self.core.doubts.register()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        renew::renew(&self.core, renewals).await.map_err(explain)
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        leave::release(&self.core, hold).await.map_err(explain)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        leave::withdraw(&self.core, claim).await.map_err(explain)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        inspect::check(&self.core, name, seq).await.map_err(explain)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        inspect::list(&self.core, prefix).await.map_err(explain)
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        inspect::view(&self.core, name).await.map_err(explain)
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        events::listen(&self.core, prefix).await.map_err(explain)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        inspect::evict(&self.core, name, seq).await.map_err(explain)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        doctor::examine(&self.core).await.map_err(explain)
    }

    fn operations(&self) -> u64 {
        self.core.sessions.operations.load(Ordering::Relaxed)
    }

    async fn close(&self) -> Result<()> {
        // Until the servers have removed everything, or the time is up: then they will.
        for session in self.core.close() {
            tokio::select! {
                () = session.ended() => {}
                () = self.core.clock.sleep(FAREWELL) => {}
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
