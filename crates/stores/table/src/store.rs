//! The store: claims, renewals and releases go to the batcher, the rest to the dialect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView, Queued, ReleaseReply,
    RenewReply, Renewal, Severity, Store, StoreInfo, Wakes,
};
use clinch_core::{ClientId, Effect, Error, ErrorKind, Name, Result, keeper};
use clinch_kit::closed::Closed;

use crate::batch::Steps;
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
    client: Arc<Client>,
    waiters: Arc<Waiters>,
    steps: Steps,
    log: Arc<EventLog>,
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
        let steps = Steps::new(Paths::new(client.clone(), waiters.clone()));
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

    /// After `close`, claims may still be withdrawn and holds released, and nothing else.
    fn check_open(&self) -> Result<()> {
        match self.closed.is_closed() {
            true => Err(self.explain(Error::new(ErrorKind::Closed, "the store was closed"))),
            false => Ok(()),
        }
    }

    /// Ends what runs in the background.
    fn end(&self) {
        if self.closed.close() {
            self.waiters.close();
            self.log.close();
            self.client.dialect.close();
        }
    }

    fn explain(&self, error: Error) -> Error {
        error.or_store(self.info.scheme)
    }

    fn unexpected(&self) -> Error {
        self.explain(Error::new(
            ErrorKind::Internal,
            "the answer is to another step",
        ))
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
        self.check_open()?;
        let step = Step::Claim(claim.clone());
        let answer = self.steps.submit(claim.name.clone(), step).await;
        let answer = self.settle(claim, answer).await;
        match answer.map_err(|error| self.explain(error))? {
            Answer::Claim(ClaimReply::Queued(queued)) => {
                let wakes_kept = self.waiters.keeps_wakes();
                Ok(ClaimReply::Queued(Queued {
                    wakes_kept,
                    ..queued
                }))
            }
            Answer::Claim(reply) => Ok(reply),
            _ => Err(self.unexpected()),
        }
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.waiters.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        let (client, steps) = (self.client.clone(), self.steps.clone());
        let renewals = renewals.to_vec();
        keeper::run(async move { renew::renew(&client, &steps, &renewals).await })
            .await
            .map_err(|error| self.explain(error))
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let step = Step::Release(hold.clone());
        match self.steps.submit(hold.name.clone(), step).await {
            Ok(Answer::Release(reply)) => Ok(reply),
            Ok(_) => Err(self.unexpected()),
            Err(error) => Err(self.explain(error)),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.waiters.forget(claim.request);
        let step = Step::Withdraw(claim.clone());
        let answer = self.steps.submit(claim.name.clone(), step).await;
        answer.map(drop).map_err(|error| self.explain(error))
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        let (dialect, name) = (self.client.dialect.clone(), name.clone());
        keeper::run(async move {
            let row = inspect::read(&*dialect, &name).await?;
            Ok(row.state(&name)?.check(seq, row.moment()))
        })
        .await
        .map_err(|error| self.explain(error))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        let (dialect, prefix) = (self.client.dialect.clone(), prefix.to_owned());
        keeper::run(async move { inspect::list(&*dialect, &prefix).await })
            .await
            .map_err(|error| self.explain(error))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        let (dialect, name) = (self.client.dialect.clone(), name.clone());
        keeper::run(async move {
            let row = inspect::read(&*dialect, &name).await?;
            Ok(row.state(&name)?.view(row.moment()))
        })
        .await
        .map_err(|error| self.explain(error))
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        let log = self.log.clone();
        let (sender, events) = Events::channel();
        let prefix = prefix.to_owned();
        keeper::run(async move { log.watch(prefix, sender).await })
            .await
            .map_err(|error| self.explain(error))?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        match self.steps.submit(name.clone(), Step::Evict(seq)).await {
            Ok(Answer::Evicted(evicted)) => Ok(evicted),
            Ok(_) => Err(self.unexpected()),
            Err(error) => Err(self.explain(error)),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let dialect = self.client.dialect.clone();
        let findings = keeper::run(async move { dialect.doctor().await }).await;
        let mut findings = findings.map_err(|error| self.explain(error))?;
        let (deadlocks, others) = self.client.conflicts.get();
        findings.push(Finding {
            severity: Severity::Ok,
            subject: "repeats".into(),
            message: format!(
                "this client has repeated {deadlocks} statements after deadlocks, {others} after \
                 other conflicts"
            ),
            advice: None,
        });
        Ok(findings)
    }

    fn operations(&self) -> u64 {
        self.client.dialect.requests()
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
