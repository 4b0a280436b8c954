//! Locks on MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Grant, Hold, Limits,
    LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{Clock, Error, ErrorKind, MAX_NAME, Name, Result, keeper};

use crate::bell::Bell;
use crate::config::Config;
use crate::error::Trouble;
use crate::group::Group;
use crate::inspect;
use crate::pool::{How, Pool};
use crate::row::{Content, MEMORY, Row, farewell, id, span};
use crate::sql::names;
use crate::steps::{Answer, Step};
use crate::{promises, renewals, schema};

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
    /// Whether the server has `INSERT … RETURNING`.
    returning: bool,
}

impl MySqlStore {
    /// Connects to the server and checks that locks can live there.
    pub(crate) async fn connect(config: Config, context: OpenContext) -> Result<Self> {
        let pool = Pool::new(&config)?;
        let me = context.identity.info().id;
        let bell = Bell::new(pool.clone(), me, &context.namespace);
        let opening = pool.clone();
        keeper::run(async move { schema::ensure(&opening).await }).await?;
        Ok(Self {
            info: Self::describe(),
            ns: context.namespace.as_bytes().to_vec(),
            group: Group::new(pool.clone(), bell.clone(), me, &context.namespace),
            pool,
            bell,
            returning: !config.plain_dialect,
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

    /// Takes a free name with one statement. The row says whether it did.
    async fn take(&self, claim: &Claim) -> Result<Option<Row>> {
        let Some(content) = Content::of_claim(claim) else {
            return Ok(None);
        };
        let key = self.group.key(&claim.name);
        let seen = self.bell.greatest();
        let (lease, returning) = (span(claim.lease), self.returning);
        let sql = names::take(&key, &content, lease, seen, returning);
        let how = match returning {
            true => How::Prepared,
            false => How::Text,
        };
        let values = repeated(&self.pool, move |pool| {
            let sql = sql.clone();
            async move {
                let reply = pool.send(&sql, how).await?;
                match reply.failed {
                    Some(trouble) => Err(trouble),
                    None => Ok(reply.into_first_row()),
                }
            }
        })
        .await?;
        Ok(values.and_then(|values| Row::read(&mut values.into_iter())))
    }

    fn explain(error: Error) -> Error {
        error.or_store("mysql")
    }
}

/// Runs a request on the keeper, again where the server has rolled it back.
async fn repeated<T, F>(
    pool: &Arc<Pool>,
    ask: impl Fn(Arc<Pool>) -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Trouble>> + Send,
{
    let pool = pool.clone();
    keeper::run(async move {
        let clock = Clock::boot();
        let give_up = clock.now() + pool.timeout();
        loop {
            match ask(pool.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(trouble) => {
                    let again = trouble.is_race() && clock.now() < give_up;
                    if !again {
                        return Err(trouble.into_error(pool.to()));
                    }
                    pool.raced(&trouble);
                }
            }
        }
    })
    .await
}

#[async_trait]
impl Store for MySqlStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        // One that waits is in a row that no single statement can change.
        let row = match self.bell.awaits(claim.request) {
            true => None,
            false => self.take(claim).await.map_err(Self::explain)?,
        };
        if let Some(row) = &row
            && row.is_held_by(claim.request, span(claim.lease))
        {
            let state = row.state(&claim.name)?;
            if let ClaimReply::Granted(grant) = state.standing(claim.request, row.moment()) {
                self.bell.saw(grant.seq);
                return Ok(ClaimReply::Granted(grant));
            }
        }
        let step = Step::Claim(claim.clone());
        let answer = self.group.run(&claim.name, step, row).await;
        match answer.map_err(Self::explain)? {
            Answer::Claim(ClaimReply::Queued(queued)) => {
                let wakes_kept = self.bell.keeps_wakes();
                Ok(ClaimReply::Queued(clinch_core::store::Queued {
                    wakes_kept,
                    ..queued
                }))
            }
            Answer::Claim(reply) => {
                if let ClaimReply::Granted(Grant { seq, .. }) = &reply {
                    self.bell.saw(*seq);
                }
                Ok(reply)
            }
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
        let key = self.group.key(&hold.name);
        let (request, farewell) = (id(hold.request), farewell(hold.request, hold.seq));
        let sql = names::give(&key, &request, hold.seq, &farewell, MEMORY);
        let given = repeated(&self.pool, move |pool| {
            let sql = sql.clone();
            async move {
                let reply = pool.send(&sql, How::Prepared).await?;
                match reply.failed {
                    Some(trouble) => Err(trouble),
                    None => Ok(reply.sets.first().map_or(0, |set| set.affected)),
                }
            }
        })
        .await
        .map_err(Self::explain)?;
        if given > 0 {
            return Ok(ReleaseReply::Released);
        }
        let step = Step::Release(hold.clone());
        match self.group.run(&hold.name, step, None).await {
            Ok(Answer::Release(reply)) => Ok(reply),
            Ok(_) => Err(strange()),
            Err(error) => Err(Self::explain(error)),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.bell.forget(claim.request);
        let step = Step::Withdraw(claim.clone());
        let answer = self.group.run(&claim.name, step, None).await;
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
        let _ = prefix;
        Ok(Events::channel().1)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        match self.group.run(name, Step::Evict(seq), None).await {
            Ok(Answer::Evicted(seqs)) => Ok(Evicted { seqs }),
            Ok(_) => Err(strange()),
            Err(error) => Err(Self::explain(error)),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let _ = &self.config;
        Ok(Vec::new())
    }

    fn operations(&self) -> u64 {
        self.pool.requests()
    }

    async fn close(&self) -> Result<()> {
        self.bell.close();
        self.pool.close();
        Ok(())
    }
}

impl Drop for MySqlStore {
    fn drop(&mut self) {
        self.bell.close();
        self.pool.close();
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Internal, "the answer is to another question").with_store("mysql")
}
