//! `QuorumStore`: locks on several independent servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
    StoreInfo, Suspicions, Wakes,
};
use clinch_core::{Clock, Name, Result, keeper};

use super::background::Background;
use super::holds;
use super::inspect;
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
    pub(super) clock: Clock,
    pub(super) quorum: Arc<Quorum>,
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
        let nodes = Arc::new(Nodes::new(
            config.clone(),
            hosts,
            need,
            keys,
            &context.operations,
        ));
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
}

#[async_trait]
impl Store for QuorumStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        strict::check(claim, &self.config)?;
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
        keeper::run(round).await
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
        holds::renew(&self.quorum, &renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        Ok(match holds::release(&self.quorum, hold).await? {
            Ok(()) => ReleaseReply::Released,
            Err(reason) => ReleaseReply::WasLost(reason),
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        holds::withdraw(&self.quorum, claim).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        Ok(match holds::check(&self.quorum, name, seq).await? {
            true => Freshness::Current,
            false => Freshness::Stale,
        })
    }

    async fn close(&self) -> Result<()> {
        self.quorum.background.close(self.config.timeout).await;
        self.quorum.nodes.close();
        Ok(())
    }
}
