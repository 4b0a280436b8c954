//! Locks on MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, Limits, LockView,
    OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Effect, Error, ErrorKind, MAX_NAME, Name, Result, keeper};

use crate::bell::Bell;
use crate::config::Config;
use crate::events::Watching;
use crate::general::General;
use crate::group::Group;
use crate::inspect;
use crate::pool::Pool;
use crate::reaper::Reaper;
use crate::recent::Recent;
use crate::server::Server;
use crate::short::Short;
use crate::steps::{Answer, Step};
use crate::turn::Turns;
use crate::{doctor, promises, renewals, schema};

/// Locks in a table of MySQL or MariaDB.
///
/// ```
/// let info = clinch_mysql::MySqlStore::describe();
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct MySqlStore {
    info: StoreInfo,
    config: Config,
    ns: Vec<u8>,
    pool: Arc<Pool>,
    bell: Arc<Bell>,
    group: Arc<Group>,
    watching: Arc<Watching>,
}

impl MySqlStore {
    /// Connects to the server and checks that locks can live there.
    pub(crate) async fn connect(config: Config, context: OpenContext) -> Result<Self> {
        let pool = Pool::new(&config)?;
        let me = context.identity.info().id;
        let recent = Arc::new(Recent::default());
        let bell = Bell::new(pool.clone(), recent.clone(), me, &context.namespace);
        let opening = pool.clone();
        let server = keeper::run(async move {
            let server = Server::ask(&opening).await?;
            server.check(opening.to())?;
            schema::ensure(&opening).await?;
            Ok(server)
        })
        .await?;
        let returning = server.is_mariadb() && !config.plain_dialect;
        let short = Short::new(pool.clone(), returning, &context.namespace);
        let general = General {
            pool: pool.clone(),
            bell: bell.clone(),
            me,
            ns: context.namespace.as_bytes().to_vec(),
            known: short.known.clone(),
            quiet: short.quiet.clone(),
            recent,
            turns: Turns::default(),
        };
        let group = Group::new(bell.clone(), short, general);
        let reaper = Reaper {
            pool: pool.clone(),
            group: group.clone(),
            ns: context.namespace.as_bytes().to_vec(),
            remember: config.remember,
        };
        reaper.start(bell.clone())?;
        Ok(Self {
            info: Self::describe(),
            ns: context.namespace.as_bytes().to_vec(),
            watching: Watching::new(pool.clone(), group.clone(), &context.namespace),
            group,
            pool,
            bell,
            config,
        })
    }

    /// What the store is, without opening it.
    ///
    /// ```
    /// assert_eq!(clinch_mysql::MySqlStore::describe().scheme, "mysql");
    /// ```
    pub fn describe() -> StoreInfo {
        StoreInfo {
            scheme: "mysql",
            summary: promises::SUMMARY,
            capabilities: Capabilities::ALL,
            guarantees: promises::GUARANTEES,
            limits: Limits {
                min_lease: Duration::from_millis(100),
                max_lease: Duration::from_secs(7 * 86_400),
                lease_step: Duration::from_millis(1),
                max_name: MAX_NAME,
            },
        }
    }

    /// After `close`, claims may still be withdrawn and holds released, and nothing else.
    fn check_open(&self) -> Result<()> {
        match self.bell.is_closed() {
            true => Err(Error::new(ErrorKind::Closed, "the store was closed").with_store("mysql")),
            false => Ok(()),
        }
    }

    /// Ends what runs in the background.
    fn end(&self) {
        self.bell.close();
        self.watching.close();
        self.pool.close();
    }

    fn explain(error: Error) -> Error {
        error.or_store("mysql")
    }

    /// What a claim is told if a copy of it had no answer and may still arrive, even one that the pool has
    /// sent again without a word to the caller: a "no" only after it was withdrawn.
    async fn settle(&self, claim: &Claim, answer: Result<Answer>) -> Result<Answer> {
        if !self.pool.late.may_arrive(claim.request) {
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
impl Store for MySqlStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        let step = Step::Claim(claim.clone());
        let answer = self.group.run(&claim.name, step).await;
        let answer = self.settle(claim, answer).await;
        match answer.map_err(Self::explain)? {
            Answer::Claim(ClaimReply::Queued(queued)) => {
                let wakes_kept = self.bell.keeps_wakes();
                Ok(ClaimReply::Queued(clinch_core::store::Queued {
                    wakes_kept,
                    ..queued
                }))
            }
            Answer::Claim(reply) => Ok(reply),
            _ => Err(strange()),
        }
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.bell.book.register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        let (pool, group) = (self.pool.clone(), self.group.clone());
        let (ns, renewals) = (self.ns.clone(), renewals.to_vec());
        keeper::run(async move { renewals::renew(&pool, &group, &ns, &renewals).await })
            .await
            .map_err(Self::explain)
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let step = Step::Release(hold.clone());
        match self.group.run(&hold.name, step).await {
            Ok(Answer::Release(reply)) => Ok(reply),
            Ok(_) => Err(strange()),
            Err(error) => Err(Self::explain(error)),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.bell.forget(claim.request);
        let step = Step::Withdraw(claim.clone());
        let answer = self.group.run(&claim.name, step).await;
        answer.map(drop).map_err(Self::explain)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        let (pool, key, name) = (self.pool.clone(), self.group.key(name), name.clone());
        keeper::run(async move {
            let row = inspect::read(&pool, &key).await?;
            Ok(row.state(&name)?.check(seq, row.moment()))
        })
        .await
        .map_err(Self::explain)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        let (pool, ns, prefix) = (self.pool.clone(), self.ns.clone(), prefix.to_owned());
        keeper::run(async move { inspect::list(&pool, &ns, &prefix).await })
            .await
            .map_err(Self::explain)
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        let (pool, key, name) = (self.pool.clone(), self.group.key(name), name.clone());
        keeper::run(async move {
            let row = inspect::read(&pool, &key).await?;
            Ok(row.state(&name)?.view(row.moment()))
        })
        .await
        .map_err(Self::explain)
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        let watching = self.watching.clone();
        let (sender, events) = Events::channel();
        let prefix = prefix.to_owned();
        keeper::run(async move { watching.add(prefix, sender).await })
            .await
            .map_err(Self::explain)?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        match self.group.run(name, Step::Evict(seq)).await {
            Ok(Answer::Evicted(evicted)) => Ok(evicted),
            Ok(_) => Err(strange()),
            Err(error) => Err(Self::explain(error)),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let (pool, config) = (self.pool.clone(), self.config.clone());
        keeper::run(async move { doctor::examine(&pool, &config).await })
            .await
            .map_err(Self::explain)
    }

    fn operations(&self) -> u64 {
        self.pool.requests()
    }

    async fn close(&self) -> Result<()> {
        self.end();
        Ok(())
    }
}

impl Drop for MySqlStore {
    fn drop(&mut self) {
        self.end();
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Internal, "the answer is to another question").with_store("mysql")
}
