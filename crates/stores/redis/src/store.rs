//! Locks on Redis.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, Limits, LockView,
    OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes, mismatch,
};
use clinch_core::{Error, ErrorKind, LostReason, MAX_NAME, Name, Result, keeper};

use crate::cluster::Cluster;
use crate::config::{Config, Topology};
use crate::group::{Coming, Group, answered};
use crate::keys::Keys;
use crate::record::{Reply, expect, step};
use crate::renewals::{self, Patience};
use crate::sentinel::Sentinels;
use crate::servers::Servers;
use crate::session::{Listen, Session};
use crate::wakes::Ears;
use crate::{doctor, inspect, promises, sentinel_watch, strict};

/// Locks on one Redis, on the master that sentinels name, or on a cluster.
///
/// ```
/// let info = clinch_redis::RedisStore::describe("redis");
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct RedisStore {
    info: StoreInfo,
    config: Arc<Config>,
    keys: Keys,
    servers: Servers,
    group: Arc<Group>,
    ears: Arc<Ears>,
}

impl RedisStore {
    /// Connects to the servers and checks that locks can live there.
    pub(crate) async fn connect(config: Arc<Config>, context: OpenContext) -> Result<Self> {
        let keys = Keys::new(&context.namespace);
        let me = context.identity.info().id;
        let channel = match &config.topology {
            // Names have channels of their own there.
            Topology::Cluster(_) => String::new(),
            _ => keys.channel(me),
        };
        let ears = Ears::new(channel, keys.events.clone());
        let mut watched = None;
        let servers = match &config.topology {
            Topology::One(address) => Servers::One(
                Session::new(config.clone(), Box::new(address.clone()), ears.clone()),
                config.scheme,
            ),
            Topology::Sentinel(..) => {
                let sentinels = Sentinels::new(&config)
                    .ok_or_else(|| Error::invalid("the sentinels are missing"))?;
                let locate = Box::new(sentinels.clone());
                let session = Session::new(config.clone(), locate, ears.clone());
                watched = Some((sentinels, session.clone()));
                Servers::One(session, config.scheme)
            }
            Topology::Cluster(seeds) => Servers::Cluster(Cluster::new(
                config.clone(),
                seeds.clone(),
                ears.clone(),
                me,
            )),
            Topology::Quorum(..) => {
                return Err(
                    Error::invalid("several independent servers are another store")
                        .with_advice("open the URL with clinch_redis::open"),
                );
            }
        };
        let mut info = Self::describe(config.scheme);
        if let Some(longest) = config.strict {
            info.limits.max_lease = info.limits.max_lease.min(longest);
        }
        let store = Self {
            info,
            group: Group::new(servers.clone(), &config, &keys),
            config,
            keys,
            servers,
            ears,
        };
        let servers = store.servers.clone();
        keeper::run(async move { servers.connect().await }).await?;
        if let Some((sentinels, session)) = watched {
            sentinel_watch::start(sentinels, &session, &store.ears)?;
        }
        Ok(store)
    }

    /// What the store of this scheme is, without opening it.
    ///
    /// ```
    /// assert_eq!(clinch_redis::RedisStore::describe("redis").scheme, "redis");
    /// ```
    pub fn describe(scheme: &'static str) -> StoreInfo {
        StoreInfo {
            scheme,
            summary: promises::summary(scheme),
            capabilities: Capabilities::ALL,
            guarantees: promises::guarantees(scheme),
            limits: Limits {
                min_lease: Duration::from_millis(50),
                max_lease: Duration::from_secs(7 * 86_400),
                lease_step: Duration::from_millis(1),
                max_name: MAX_NAME,
            },
        }
    }

    /// After `close`, claims may still be withdrawn and holds released, and nothing else.
    fn check_open(&self) -> Result<()> {
        match self.ears.is_closed() {
            true => {
                Err(Error::new(ErrorKind::Closed, "the store was closed")
                    .with_store(self.info.scheme))
            }
            false => Ok(()),
        }
    }

    /// A hold is lost, and nobody will release it: copies of its claim must find that it has ended.
    fn abandon(&self, hold: &Hold) {
        if self.group.is_unanswered(hold.request) {
            // Without an answer a copy can be applied for a few seconds more.
            drop(
                self.group
                    .withdraw(self.keys.state(&hold.name), hold.request),
            );
        }
    }

    fn explain(&self, error: Error) -> Error {
        error.or_store(self.info.scheme)
    }

    async fn step<T>(
        &self,
        name: &Name,
        packed: Vec<u8>,
        pick: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T> {
        let coming = self.group.send(self.keys.state(name), packed, false);
        self.picked(coming, pick).await
    }

    /// The answer to a step that is on its way.
    async fn picked<T>(&self, coming: Coming, pick: impl FnOnce(Reply) -> Option<T>) -> Result<T> {
        let reply = answered(coming).await;
        reply
            .and_then(|reply| expect(reply, self.info.scheme, pick))
            .map_err(|error| self.explain(error))
    }
}

/// Yes, or why not.
fn held(reply: Reply) -> Option<Result<(), LostReason>> {
    match reply {
        Reply::Yes => Some(Ok(())),
        Reply::No(reason) => Some(Err(reason)),
        _ => None,
    }
}

#[async_trait]
impl Store for RedisStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        strict::check(claim, &self.config)?;
        let packed = step::claim(claim, self.ears.greatest());
        let key = self.keys.state(&claim.name);
        let listening = self.servers.subscription(&key);
        let coming = self.group.claim(key.clone(), claim, packed);
        let reply = self
            .picked(coming, |reply| match reply {
                Reply::Mismatch { limit } => Some(Err(mismatch(&claim.name, limit, claim.limit))),
                reply => {
                    let same = self.servers.subscription(&key) == listening;
                    reply.into_claim(listening.is_some() && same).map(Ok)
                }
            })
            .await??;
        if let ClaimReply::Granted(grant) = &reply {
            self.ears.saw(grant.seq);
        }
        Ok(reply)
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        let wakes = self.ears.book.register(claim.request);
        self.servers.listen(&self.keys.state(&claim.name), claim);
        wakes
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        let patience = Patience::of(renewals);
        let send = |renewal: &Renewal| {
            let key = self.keys.state(&renewal.hold.name);
            self.group.renew(key, renewal, patience.reply)
        };
        let sent: Vec<_> = renewals.iter().map(send).collect();
        let mut waiting = patience.start();
        let mut outcomes = Vec::with_capacity(sent.len());
        for (answer, renewal) in sent.into_iter().zip(renewals) {
            let reply = waiting.answered(answer).await;
            let held = reply.and_then(|reply| expect(reply, self.info.scheme, held));
            outcomes.push(match held {
                Ok(Ok(())) => Ok(RenewReply::Held),
                Ok(Err(reason)) => {
                    self.abandon(&renewal.hold);
                    Ok(RenewReply::Lost(reason))
                }
                // Something else has written over this lock: it takes no other hold with it.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::error!(%error, "a hold is lost");
                    Ok(RenewReply::Lost(LostReason::Forgotten))
                }
                Err(error) => Err(error),
            });
        }
        renewals::each_or_error(outcomes).map_err(|error| self.explain(error))
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let coming = self.group.release(self.keys.state(&hold.name), hold);
        let held = self.picked(coming, held).await?;
        Ok(match held {
            Ok(()) => ReleaseReply::Released,
            Err(reason) => ReleaseReply::WasLost(reason),
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let key = self.keys.state(&claim.name);
        let coming = self.group.withdraw(key, claim.request);
        self.picked(coming, held).await?.ok();
        Ok(())
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        Ok(match self.step(name, step::check(seq), held).await? {
            Ok(()) => Freshness::Current,
            Err(_) => Freshness::Stale,
        })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        let (servers, keys, prefix) = (self.servers.clone(), self.keys.clone(), prefix.to_owned());
        keeper::run(async move { inspect::list(&servers, &keys, &prefix).await })
            .await
            .map_err(|error| self.explain(error))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        let (servers, keys, name) = (self.servers.clone(), self.keys.clone(), name.clone());
        keeper::run(async move { inspect::one(&servers, &keys, &name).await })
            .await
            .map_err(|error| self.explain(error))
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        let (sender, events) = self.ears.watchers.add(prefix, &self.keys);
        let (servers, ears) = (self.servers.clone(), self.ears.clone());
        let channel = self.keys.events.clone();
        let listening = async move {
            servers.watch(&channel).await?;
            let ending = async move {
                // A sender that is kept would keep the stream open after the store has closed.
                tokio::select! {
                    () = sender.closed() => {}
                    () = ears.closed() => return,
                }
                if !ears.watchers.any() {
                    for session in servers.all() {
                        session.unsubscribe(&channel).await;
                    }
                }
            };
            keeper::spawn(ending)
        };
        keeper::run(listening)
            .await
            .map_err(|error| self.explain(error))?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        self.step(name, step::evict(seq), |reply| match reply {
            Reply::Evicted(evicted) => Some(evicted),
            _ => None,
        })
        .await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let (servers, config) = (self.servers.clone(), self.config.clone());
        let keys = self.keys.clone();
        keeper::run(async move { doctor::examine(&servers, &config, Some(&keys)).await })
            .await
            .map_err(|error| self.explain(error))
    }

    fn operations(&self) -> u64 {
        self.servers.commands()
    }

    async fn close(&self) -> Result<()> {
        self.ears.close();
        self.servers.close();
        Ok(())
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.ears.close();
        self.servers.close();
    }
}
