//! Locks on several independent servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Capability, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Guarantees,
    Hold, Limits, LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo,
    Wakes,
};
use clinch_core::{Clock, Error, ErrorKind, MAX_NAME, Name, Result, keeper};

use super::chores::Chores;
use super::holds;
use super::nodes::Nodes;
use super::requests::Requests;
use super::round::{Quorum, Round};
use super::view::{self, What};
use crate::config::{Address, Config};
use crate::keys::Keys;
use crate::strict;

/// Locks on several independent servers, of which a majority, or all, must agree.
///
/// ```
/// let majority = clinch_redis::QuorumStore::describe(false).capabilities;
/// assert!(majority.tokens && majority.shared && !majority.semaphores && !majority.queue);
/// assert!(clinch_redis::QuorumStore::describe(true).capabilities.semaphores); // need=all
/// ```
#[derive(Debug)]
pub struct QuorumStore {
    info: StoreInfo,
    config: Arc<Config>,
    clock: Clock,
    quorum: Arc<Quorum>,
    /// Published values so far, to tell old from new.
    published: AtomicU64,
}

impl QuorumStore {
    /// Connects to the servers and checks that locks can live there.
    pub(crate) async fn connect(
        config: Arc<Config>,
        hosts: &[Address],
        need: usize,
        context: OpenContext,
    ) -> Result<Self> {
        let keys = Keys::new(&context.namespace);
        let nodes = Arc::new(Nodes::new(config.clone(), hosts, need, keys));
        nodes.connect(&context.clock).await?;
        Ok(Self {
            info: Self::describe(need == hosts.len()),
            quorum: Arc::new(Quorum {
                nodes,
                requests: Arc::new(Requests::default()),
                chores: Chores::new(context.clock.clone()),
                seen: AtomicU64::new(0),
                half: config.timeout * 2,
            }),
            config,
            clock: context.clock,
            published: AtomicU64::new(0),
        })
    }

    /// What the store is, without opening it; `all` for `need=all`.
    ///
    /// ```
    /// assert_eq!(clinch_redis::QuorumStore::describe(false).scheme, "redis+quorum");
    /// ```
    pub fn describe(all: bool) -> StoreInfo {
        StoreInfo {
            scheme: "redis+quorum",
            summary: "independent Redis servers, of which a majority (or all) must agree",
            capabilities: Capabilities {
                queue: false,
                events: false,
                semaphores: all,
                ..Capabilities::ALL
            },
            guarantees: Guarantees {
                scope: "processes that reach enough of the servers",
                exclusion: "while no server that a hold counts on loses its data or has its clock \
                            set forward; with durability=strict also after a loss of data",
                token_order: "across clients, crashes, restarts and clock steps of fewer servers \
                              than agree; after a loss of data, as long as the clocks of those \
                              servers have not gone back",
                liveness: "a dead holder's lock is free after its lease and lock-delay, as long as \
                           enough servers are up; waiters poll, and come in no order",
                clock: "the wall clock of each server, for its own part",
            },
            limits: Limits {
                min_lease: Duration::from_millis(50),
                max_lease: Duration::from_secs(7 * 86_400),
                lease_step: Duration::from_millis(1),
                max_name: MAX_NAME,
            },
        }
    }

    fn explain(&self, error: Error) -> Error {
        error.or_store(self.info.scheme)
    }

    /// Refuses what servers could not keep.
    fn check_claim(&self, claim: &Claim) -> Result<()> {
        // The engine has asked before; a claim that came another way must not break the promise.
        if !matches!(claim.limit, 1 | u32::MAX) && !self.info.capabilities.semaphores {
            let text = format!("this store has no {}", Capability::Semaphores);
            return Err(Error::new(ErrorKind::Unsupported, text)
                .with_advice("a majority cannot count units: use need=all, or another store"));
        }
        strict::check(claim, &self.config)
    }
}

#[async_trait]
impl Store for QuorumStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_claim(claim)
            .map_err(|error| self.explain(error))?;
        let claim = Claim {
            value: claim.value.as_ref().map(|value| view::stamped(0, value)),
            ..claim.clone()
        };
        let visit = self.quorum.requests.visit(claim.request);
        let turn = visit.turn().await;
        let quorum = self.quorum.clone();
        let round = async move {
            let reply = Round::run(quorum, visit, claim).await;
            drop(turn);
            reply
        };
        keeper::run(round)
            .await
            .map_err(|error| self.explain(error))
    }

    fn wakes(&self, _claim: &Claim) -> Wakes {
        // Nobody is told: the stream ends at once, and the poll goes on.
        Wakes::channel().1
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let stamped = |renewal: &Renewal| Renewal {
            value: renewal.value.as_ref().map(|value| {
                let number = self.published.fetch_add(1, Ordering::Relaxed) + 1;
                view::stamped(number, value)
            }),
            ..renewal.clone()
        };
        let renewals: Vec<_> = renewals.iter().map(stamped).collect();
        let replies = holds::renew(&self.quorum, &renewals).await;
        replies.map_err(|error| self.explain(error))
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let released = holds::release(&self.quorum, hold).await;
        Ok(match released.map_err(|error| self.explain(error))? {
            Ok(()) => ReleaseReply::Released,
            Err(reason) => ReleaseReply::WasLost(reason),
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let withdrawn = holds::withdraw(&self.quorum, claim).await;
        withdrawn.map_err(|error| self.explain(error))
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let current = holds::check(&self.quorum, name, seq).await;
        Ok(match current.map_err(|error| self.explain(error))? {
            true => Freshness::Current,
            false => Freshness::Stale,
        })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let what = What::Prefix(prefix.to_owned());
        let views = view::look(self.quorum.nodes.clone(), what, &self.clock).await;
        views.map_err(|error| self.explain(error))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let what = What::One(name.clone());
        let views = view::look(self.quorum.nodes.clone(), what, &self.clock).await;
        let mut views = views.map_err(|error| self.explain(error))?;
        Ok(views.pop())
    }

    async fn events(&self, _prefix: &str) -> Result<Events> {
        let text = format!("this store has no {}", Capability::Events);
        Err(self.explain(Error::new(ErrorKind::Unsupported, text)))
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let evicted = holds::evict(&self.quorum, name, seq).await;
        evicted.map_err(|error| self.explain(error))
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let nodes = self.quorum.nodes.clone();
        keeper::run(async move { nodes.examine().await })
            .await
            .map_err(|error| self.explain(error))
    }

    fn operations(&self) -> u64 {
        self.quorum.nodes.commands()
    }

    async fn close(&self) -> Result<()> {
        self.quorum.chores.close(self.config.timeout).await;
        self.quorum.nodes.close();
        Ok(())
    }
}
