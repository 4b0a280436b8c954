//! The store: claims, renewals and releases go to the batcher, the rest to the dialect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, ReleaseReply, RenewReply, Renewal, Store, StoreInfo,
    Suspicions, Wakes,
};
use clinch_core::{ClientId, Effect, Error, ErrorKind, Name, Result, keeper};
use clinch_kit::closed::Closed;

use crate::batch::StepBatcher;
use crate::cleanup::Cleanup;
use crate::client::Client;
use crate::events::EventLog;
use crate::paths::Paths;
use crate::steps::{Answer, Step};
use crate::{Dialect, Waiters, inspect, renew};

/// Locks in a table of an SQL engine.
#[derive(Debug)]
pub struct TableStore {
    info: StoreInfo,
    pub(crate) client: Arc<Client>,
    waiters: Arc<Waiters>,
    pub(crate) steps: StepBatcher,
    pub(crate) log: Arc<EventLog>,
    closed: Arc<Closed>,
}

/// What a [`TableStore`] needs besides its dialect.
#[derive(Debug)]
pub struct Options {
    /// Describes the store.
    pub info: StoreInfo,
    /// The client.
    pub client: ClientId,
    /// For how long an idle name keeps its row: longer than any copy of a request is under way.
    pub remember: Duration,
    /// The server's clock when the store was opened, so that the first claim can have a deadline.
    pub now: Option<u64>,
}

impl TableStore {
    /// Starts a store whose tables exist.
    pub fn start(dialect: Arc<dyn Dialect>, options: Options) -> Result<Self> {
        let client = Client::new(dialect.clone(), options.client);
        if let Some(now) = options.now {
            client.late.saw_clock(now);
        }
        let closed = Arc::new(Closed::default());
        let waiters = Waiters::new(client.clone(), closed.clone());
        let steps = StepBatcher::new(Paths::new(client.clone(), waiters.clone()));
        let cleanup = Cleanup {
            dialect: dialect.clone(),
            steps: steps.clone(),
            remember: options.remember,
        };
        cleanup.start(closed.closing())?;
        Ok(Self {
            info: options.info,
            log: EventLog::new(dialect, steps.clone()),
            client,
            waiters,
            steps,
            closed,
        })
    }

    /// Ends what runs in the background.
    fn end(&self) {
        if self.closed.close() {
            self.waiters.close();
            self.log.close();
            self.client.dialect.close();
        }
    }

    /// The answer to a claim of which a copy had no reply and may still arrive, even one that the dialect
    /// has sent again by itself: a "no" is given only after the claim was withdrawn.
    async fn settle(&self, claim: &Claim, answer: Result<Answer>) -> Result<Answer> {
        if !self.client.late.may_arrive(claim.request) {
            return answer;
        }
        let refused = match &answer {
            Ok(Answer::Claim(reply)) => matches!(reply, ClaimReply::Busy(_)),
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::Mismatch,
        };
        let possible = |error: Error| error.with_effect(Effect::Possible);
        match refused {
            true => self.withdraw(claim).await.map_err(possible).and(answer),
            false => answer.map_err(possible),
        }
    }
}

#[async_trait]
impl Store for TableStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let step = Step::Claim(claim.clone());
        let answer = self.steps.submit(claim.name.clone(), step).await;
        let answer = self.settle(claim, answer).await;
        match answer? {
            Answer::Claim(ClaimReply::Queued(queued)) => {
                let kept = self.waiters.keeps_wakes();
                Ok(ClaimReply::Queued(queued.with_wakes_kept(kept)))
            }
            Answer::Claim(reply) => Ok(reply),
            _ => Err(unexpected()),
        }
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.waiters.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let (client, steps) = (self.client.clone(), self.steps.clone());
        let renewals = renewals.to_vec();
        keeper::run(async move { renew::renew(&client, &steps, &renewals).await }).await
    }

    /// No connection belongs to a hold, so nothing is learnt between renewals.
    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let step = Step::Release(hold.clone());
        match self.steps.submit(hold.name.clone(), step).await? {
            Answer::Release(reply) => Ok(reply),
            _ => Err(unexpected()),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.waiters.forget(claim.request);
        let step = Step::Withdraw(claim.clone());
        self.steps.submit(claim.name.clone(), step).await.map(drop)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let (dialect, name) = (self.client.dialect.clone(), name.clone());
        keeper::run(async move {
            let row = inspect::read(&*dialect, &name).await?;
            Ok(row.state(&name)?.check(seq, row.moment()))
        })
        .await
    }

    async fn close(&self) -> Result<()> {
        self.end();
        Ok(())
    }
}

impl Drop for TableStore {
    fn drop(&mut self) {
        self.end();
    }
}

/// An answer that belongs to another kind of step.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "the answer is to another step")
}
