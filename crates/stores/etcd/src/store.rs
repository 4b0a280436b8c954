//! The store: locks on etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Baton, Claim, ClaimReply, Events, Evicted, Finding, Floor, Freshness, Hold, LockView,
    OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{ClientId, Error, ErrorKind, Name, Result, keeper};

use crate::client::Client;
use crate::config::Config;
use crate::connection::Session;
use crate::error::CallError;
use crate::floor::{LockBaton, PutFloor};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::{doctor, info};

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
    me: ClientId,
    client: Client,
}

impl EtcdStore {
    pub(crate) async fn connect(config: Arc<Config>, context: OpenContext) -> Result<Self> {
        let me = context.identity.info().id;
        let session = Session::new(config, context.clock);
        let keys = Keys::new(&context.namespace);
        // A client may open several stores; their key slots and leases must differ.
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = STORES.fetch_add(1, Ordering::Relaxed);
        let unique = me.get() ^ store.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let leases = Leases::new(session.clone(), unique, keys.starting("").0);
        // A lease of one second is rounded up to the cluster's minimum; this one is never extended.
        let probe = async {
            let minimum = leases.grant(1).await?.ttl;
            leases.retention().await?;
            Ok::<_, CallError>(minimum)
        };
        let minimum = probe.await.map_err(CallError::without_effect)?;
        let mut info = Self::describe();
        info.limits.min_lease = minimum.max(Duration::from_secs(1));
        Ok(Self {
            info,
            me,
            client: Client::new(session, keys, leases, unique),
        })
    }

    /// What this store is, can and guarantees on a cluster with default settings.
    ///
    /// ```
    /// let info = clinch_etcd::EtcdStore::describe();
    /// assert_eq!(info.limits.lease_step, std::time::Duration::from_secs(1));
    /// ```
    pub fn describe() -> StoreInfo {
        info::describe()
    }

    fn check_open(&self) -> Result<()> {
        match self.client.watches.is_closed() {
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
        self.client.claim(claim).await.map_err(explain)
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.client.watches.wakes.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        self.client.renew(renewals).await.map_err(explain)
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.client.release(hold).await.map_err(explain)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.client.withdraw(claim).await.map_err(explain)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        self.client.check(name, seq).await.map_err(explain)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        self.client.views(prefix).await.map_err(explain)
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        self.client.view(name).await.map_err(explain)
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        self.client.events(prefix).await.map_err(explain)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        self.client.evict(name, seq).await.map_err(explain)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let minimum = self.info.limits.min_lease;
        doctor::examine(&self.client, minimum)
            .await
            .map_err(explain)
    }

    fn operations(&self) -> u64 {
        self.client.session.requests()
    }

    async fn floor(&self) -> Result<Option<Box<dyn Floor>>> {
        let (session, leases) = (self.client.session.clone(), &self.client.leases);
        let floor = PutFloor::new(session, leases, &self.me.to_string()).await;
        Ok(Some(Box::new(floor.map_err(explain)?)))
    }

    async fn baton(&self, name: &str) -> Result<Option<Box<dyn Baton>>> {
        let (session, leases) = (self.client.session.clone(), &self.client.leases);
        let baton = LockBaton::new(session, leases, name).await;
        Ok(Some(Box::new(baton.map_err(explain)?)))
    }

    async fn close(&self) -> Result<()> {
        self.client.watches.close();
        // A claim that is left keeps its lock-delay.
        let delay_leases = !self.client.ledger.has_delays();
        let revoked = self.client.leases.revoke_all(delay_leases).await;
        self.client.session.close();
        revoked.map_err(explain)
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.client.watches.close();
        let (leases, session) = (self.client.leases.clone(), self.client.session.clone());
        if leases.is_empty() {
            return;
        }
        // Guards may outlive their client, but not the store: no guard uses these leases any more.
        let revoking = async move {
            if let Err(error) = leases.revoke_all(false).await {
                tracing::debug!(%error, "leases expire instead of being revoked");
            }
            session.close();
        };
        if let Err(error) = keeper::spawn(revoking) {
            tracing::debug!(%error, "leases expire instead of being revoked");
        }
    }
}
