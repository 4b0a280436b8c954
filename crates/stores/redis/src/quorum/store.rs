//! `QuorumStore`: locks on several independent servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use clinch_core::store::{
    Capability, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView,
    OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Clock, Error, ErrorKind, Name, Result, keeper};

use super::background::Background;
use super::holds;
use super::inspect::{self, What};
use super::ledger::Ledger;
use super::nodes::Nodes;
use super::round::{Quorum, Round};
use crate::config::{Address, Config};
use crate::keys::Keys;
use crate::{info, strict};

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
    /// Published values so far, to order them by age.
    published: AtomicU64,
}

impl QuorumStore {
    /// Connects to the servers and checks that they can keep locks.
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
                ledger: Arc::new(Ledger::default()),
                background: Background::new(context.clock.clone()),
                seen: AtomicU64::new(0),
                prepare_lease: config.timeout * 2,
            }),
            config,
            clock: context.clock,
            published: AtomicU64::new(0),
        })
    }

    /// The properties of the store, without opening it; `all` for `need=all`.
    ///
    /// ```
    /// assert_eq!(clinch_redis::QuorumStore::describe(false).scheme, "redis+quorum");
    /// ```
    pub fn describe(all: bool) -> StoreInfo {
        info::quorum(all)
    }

    fn explain(&self, error: Error) -> Error {
        error.or_store(self.info.scheme)
    }

    /// Refuses a claim that the servers could not keep.
    fn check_claim(&self, claim: &Claim) -> Result<()> {
        // The engine has checked this; a claim from elsewhere must not break the guarantee.
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
            value: claim.value.as_ref().map(|value| inspect::stamped(0, value)),
            ..claim.clone()
        };
        let visit = self.quorum.ledger.visit(claim.request);
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
        // There are no wakes: the stream ends at once, and the waiter polls.
        Wakes::channel().1
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let stamped = |renewal: &Renewal| Renewal {
            value: renewal.value.as_ref().map(|value| {
                let number = self.published.fetch_add(1, Ordering::Relaxed) + 1;
                inspect::stamped(number, value)
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
        let views = inspect::views(self.quorum.nodes.clone(), what, &self.clock).await;
        views.map_err(|error| self.explain(error))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let what = What::One(name.clone());
        let views = inspect::views(self.quorum.nodes.clone(), what, &self.clock).await;
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
        self.quorum.background.close(self.config.timeout).await;
        self.quorum.nodes.close();
        Ok(())
    }
}
