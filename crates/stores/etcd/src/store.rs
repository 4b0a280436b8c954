//! Locks on etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, Limits, LockView,
    OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Error, ErrorKind, MAX_NAME, Name, Result, keeper};

use crate::config::Config;
use crate::core::Core;
use crate::error::Trouble;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::session::Session;
use crate::{doctor, promises};

/// Locks on etcd.
///
/// ```no_run
/// # async fn demo() -> clinch_core::Result<()> {
/// let context = clinch_core::Clinch::context("app")?;
/// let store = clinch_etcd::open(&"etcd://localhost".parse()?, context.clone()).await?;
/// let clinch = clinch_core::Clinch::builder(store, context).build();
/// let guard = clinch.lock("orders/42").acquire().await?;
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EtcdStore {
    info: StoreInfo,
    core: Core,
}

impl EtcdStore {
    pub(crate) async fn connect(config: Arc<Config>, context: OpenContext) -> Result<Self> {
        let me = context.identity.info().id;
        let session = Session::new(config, context.clock);
        let keys = Keys::new(&context.namespace);
        // A client may open several stores; their seats and leases must differ.
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        let unique = me.get() ^ store.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let leases = Leases::new(session.clone(), unique, keys.starting("").0);
        // A lease of a second becomes the shortest that the cluster has; nobody keeps it alive.
        let probe = async { Ok::<_, Trouble>((leases.grant(1).await?, leases.memory().await?)) };
        let ((_, _, least, _), _) = probe.await.map_err(Trouble::of_a_read)?;
        let mut info = Self::describe();
        info.limits.min_lease = least.max(Duration::from_secs(1));
        Ok(Self {
            info,
            core: Core::new(session, keys, leases, unique),
        })
    }

    /// What this store is, can and promises, on a cluster with the usual settings.
    ///
    /// ```
    /// let info = clinch_etcd::EtcdStore::describe();
    /// assert_eq!(info.limits.lease_step, std::time::Duration::from_secs(1));
    /// ```
    pub fn describe() -> StoreInfo {
        StoreInfo {
            scheme: "etcd",
            summary: "an etcd cluster: locks outlive the loss of members",
            capabilities: Capabilities::ALL,
            guarantees: promises::GUARANTEES,
            limits: Limits {
                min_lease: Duration::from_secs(2),
                max_lease: Duration::from_secs(7 * 86_400),
                lease_step: Duration::from_secs(1),
                max_name: MAX_NAME,
            },
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.core.ears.is_closed() {
            true => Err(Error::new(ErrorKind::Closed, "the store was closed").with_store("etcd")),
            false => Ok(()),
        }
    }
}

fn explain(error: Error) -> Error {
    error.or_store("etcd")
}

#[async_trait]
impl Store for EtcdStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        self.core.claim(claim).await.map_err(explain)
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.core.ears.book.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        self.core.renew(renewals).await.map_err(explain)
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.core.release(hold).await.map_err(explain)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.core.withdraw(claim).await.map_err(explain)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        self.core.check(name, seq).await.map_err(explain)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        self.core.views(prefix).await.map_err(explain)
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        self.core.view(name).await.map_err(explain)
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        self.core.events(prefix).await.map_err(explain)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        self.core.evict(name, seq).await.map_err(explain)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let least = self.info.limits.min_lease;
        doctor::examine(&self.core, least).await.map_err(explain)
    }

    fn operations(&self) -> u64 {
        self.core.session.requests()
    }

    async fn close(&self) -> Result<()> {
        self.core.ears.close();
        let companions = !self.core.ours.has_delays();
        let revoked = self.core.leases.revoke_all(companions).await;
        self.core.session.close();
        revoked.map_err(explain)
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.core.ears.close();
        let (leases, session) = (self.core.leases.clone(), self.core.session.clone());
        if leases.is_empty() {
            return;
        }
        // Guards may outlive their client, but not the store: what is left is nobody's.
        let leaving = async move {
            if let Err(error) = leases.revoke_all(false).await {
                tracing::debug!(%error, "leases run out instead of being revoked");
            }
            session.close();
        };
        if let Err(error) = keeper::spawn(leaving) {
            tracing::debug!(%error, "leases run out instead of being revoked");
        }
    }
}
