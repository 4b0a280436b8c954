//! The store: locks on etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
    StoreInfo, Suspicions, Wakes,
};
use clinch_core::{Name, Result, keeper};

use crate::client::Client;
use crate::config::Config;
use crate::connection::Session;
use crate::error::CallError;
use crate::info::INFO;
use crate::keys::Keys;
use crate::leases::Leases;

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
    pub(crate) client: Client,
}

impl EtcdStore {
    pub(crate) async fn connect(config: Arc<Config>, context: OpenContext) -> Result<Self> {
        let me = context.identity.info().id;
        let session = Session::new(config, context.clock, context.operations);
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
        INFO
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.client.claim(claim).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.client.watches.wakes.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.client.renew(renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.client.release(hold).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.client.withdraw(claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.client.check(name, seq).await
    }

    async fn close(&self) -> Result<()> {
        self.client.watches.close();
        // A claim that is left keeps its lock-delay.
        let delay_leases = !self.client.ledger.has_delays();
        let revoked = self.client.leases.revoke_all(delay_leases).await;
        self.client.session.close();
        revoked
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
