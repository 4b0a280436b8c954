//! `RedisStore`: locks on one Redis, with sentinels, or on a cluster.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
    StoreInfo, Suspicions, Wakes,
};
use clinch_core::{Name, Result, keeper};

use crate::batch::{Batcher, Pending, Step};
use crate::cluster::Cluster;
use crate::config::{Config, Topology};
use crate::connection::{Locate, Servers, Session};
use crate::keys::Keys;
use crate::record::{Reply, expect, step};
use crate::sentinel::{self, Sentinels};
use crate::wakes::PushRouter;
use crate::{claim, info, release, renew};

/// Locks on one Redis, on the master that sentinels name, or on a cluster.
///
/// ```
/// let info = clinch_redis::RedisStore::describe("redis");
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct RedisStore {
    pub(crate) info: StoreInfo,
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Keys,
    pub(crate) servers: Servers,
    pub(crate) batcher: Batcher,
    pub(crate) pushes: Arc<PushRouter>,
}

impl RedisStore {
    /// Connects to the servers and checks that they can keep locks.
    pub(crate) async fn connect(
        config: Arc<Config>,
        topology: &Topology,
        context: OpenContext,
    ) -> Result<Self> {
        let keys = Keys::new(&context.namespace);
        let me = context.identity.info().id;
        let pushes = match topology {
            Topology::Cluster(_) => PushRouter::of_cluster(keys.clone()),
            Topology::One(_) | Topology::Sentinel(..) => {
                PushRouter::new(keys.channel(me), Some(keys.clone()))
            }
        };
        let session = |locate: Box<dyn Locate>| {
            let operations = context.operations.clone();
            Session::new(config.clone(), locate, pushes.clone(), operations)
        };
        let mut watched = None;
        let servers = match topology {
            Topology::One(address) => {
                Servers::One(session(Box::new(address.clone())), config.scheme)
            }
            Topology::Sentinel(hosts, master) => {
                let sentinels = Sentinels::new(&config, hosts, master);
                let session = session(Box::new(sentinels.clone()));
                watched = Some((sentinels, session.clone()));
                Servers::One(session, config.scheme)
            }
            Topology::Cluster(seeds) => Servers::Cluster(Cluster::new(
                config.clone(),
                seeds.clone(),
                pushes.clone(),
                me,
                context.operations.clone(),
            )),
        };
        let mut info = Self::describe(config.scheme);
        if let Some(longest) = config.strict {
            info.limits.max_lease = info.limits.max_lease.min(longest);
        }
        let store = Self {
            info,
            batcher: Batcher::new(servers.clone(), &config, &keys),
            config,
            keys,
            servers,
            pushes,
        };
        let servers = store.servers.clone();
        keeper::run(async move { servers.connect().await }).await?;
        if let Some((sentinels, session)) = watched {
            sentinel::start(sentinels, &session, &store.pushes)?;
        }
        Ok(store)
    }

    /// The properties of the store of this scheme, without opening it.
    ///
    /// ```
    /// assert_eq!(clinch_redis::RedisStore::describe("redis").scheme, "redis");
    /// ```
    pub fn describe(scheme: &'static str) -> StoreInfo {
        info::redis(scheme)
    }

    /// Sends a step and picks its reply.
    pub(crate) async fn step<T>(
        &self,
        name: &Name,
        packed: Vec<u8>,
        pick: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T> {
        let step = Step::new(self.keys.state(name), packed, false);
        let pending = self.batcher.send(step);
        self.picked(pending, pick).await
    }

    /// The reply to a step that was sent.
    pub(crate) async fn picked<T>(
        &self,
        pending: Pending,
        pick: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T> {
        expect(pending.await?, self.info.scheme, pick)
    }
}

#[async_trait]
impl Store for RedisStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        claim::claim(self, claim).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        let wakes = self.pushes.wakes.register(claim.request);
        self.servers.listen(&self.keys.state(&claim.name), claim);
        wakes
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        renew::renew(self, renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        release::release(self, hold).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        release::withdraw(self, claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let held = self.step(name, step::check(seq), release::held).await?;
        Ok(match held {
            Ok(()) => Freshness::Current,
            Err(_) => Freshness::Stale,
        })
    }

    async fn close(&self) -> Result<()> {
        self.pushes.close();
        self.servers.close();
        Ok(())
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.pushes.close();
        self.servers.close();
    }
}
