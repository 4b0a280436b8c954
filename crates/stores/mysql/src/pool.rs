//! Connections: made on demand, used by one request at a time, given up when they stall.
//!
//! All of it runs on the keeper, so that neither a blocked runtime of the user nor a dropped future
//! leaves a connection in the middle of a reply.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{Clock, Error, ErrorKind, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Params, Row, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::config::Config;
use crate::error::{Trouble, connecting};
use crate::late::Late;
use crate::options;
use crate::sql::Sql;

/// No reply is waited for less than this: servers do stall, and a new connection costs more.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// What one statement gave.
#[derive(Debug, Default)]
pub(crate) struct Set {
    pub(crate) rows: Vec<Vec<Value>>,
    /// Rows that it changed.
    pub(crate) affected: u64,
    /// What it has given to `LAST_INSERT_ID()`. Of the same session's past if it changed no row.
    pub(crate) number: Option<u64>,
}

/// What a request gave, statement by statement, up to the first that failed.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) sets: Vec<Set>,
    pub(crate) failed: Option<Trouble>,
    /// How long it took.
    pub(crate) took: Duration,
    /// Whether an earlier copy of the request had no reply: it may have been applied, or may still arrive.
    pub(crate) repeated: bool,
}

impl Reply {
    /// All of it, or why there is not all.
    pub(crate) fn whole(self) -> Result<Self, Trouble> {
        match self.failed {
            Some(trouble) => Err(trouble),
            None => Ok(self),
        }
    }

    /// The only value of the first row of the last statement.
    pub(crate) fn into_first_value(self) -> Option<Value> {
        self.into_first_row()?.into_iter().next()
    }

    /// The first row of the last statement.
    pub(crate) fn into_first_row(self) -> Option<Vec<Value>> {
        self.into_rows().into_iter().next()
    }

    /// The rows of the last statement.
    pub(crate) fn into_rows(mut self) -> Vec<Vec<Value>> {
        self.sets.pop().map(|set| set.rows).unwrap_or_default()
    }

    /// What the only statement gave to `LAST_INSERT_ID()`, if it changed its one row.
    pub(crate) fn number_if_changed(&self) -> Option<u64> {
        match self.sets.as_slice() {
            [set] if set.affected == 1 => set.number,
            _ => None,
        }
    }

    /// What the statement with this number changed.
    pub(crate) fn affected(&self, statement: usize) -> Option<u64> {
        self.sets.get(statement).map(|set| set.affected)
    }
}

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// One statement, prepared once on each connection. It may be repeated.
    Prepared,
    /// Text of one or several statements that may be repeated.
    Text,
    /// Text that must not be sent twice.
    TextOnce,
}

/// The connections of one store.
pub(crate) struct Pool {
    opts: Opts,
    to: String,
    timeout: Duration,
    permits: Semaphore,
    idle: Mutex<VecDeque<Conn>>,
    closed: std::sync::atomic::AtomicBool,
    /// A reply has not come in time, and none on any connection since.
    silent: std::sync::atomic::AtomicBool,
    requests: AtomicU64,
    pub(crate) races: Races,
    pub(crate) late: Arc<Late>,
}

/// Statements that the server rolled back and that were sent again.
#[derive(Debug, Default)]
pub(crate) struct Races {
    pub(crate) deadlocks: AtomicU64,
    pub(crate) others: AtomicU64,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            opts: options::options(config)?,
            to: config.to(),
            timeout: config.timeout,
            permits: Semaphore::new(config.pool),
            idle: Mutex::default(),
            closed: false.into(),
            silent: false.into(),
            requests: AtomicU64::default(),
            races: Races::default(),
            late: Arc::new(Late::new(config.timeout)),
        }))
    }

    /// The server, for people.
    pub(crate) fn to(&self) -> &str {
        &self.to
    }

    /// How long a reply is waited for.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a reply to a renewal of these leases is waited for: a hold must outlive a connection that
    /// has gone silent, so there has to be time for another try.
    pub(crate) fn patience(&self, leases: impl Iterator<Item = Duration>) -> Duration {
        let shortest = leases.min().map(|lease| (lease / 4).max(LEAST_PATIENCE));
        shortest.map_or(self.timeout, |patience| patience.min(self.timeout))
    }

    /// Requests sent so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a request on a connection of its own.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a statement that was rolled back.
    pub(crate) fn raced(&self, trouble: &Trouble) {
        let counter = match trouble.is_deadlock() {
            true => &self.races.deadlocks,
            false => &self.races.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Conn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes idle connections, and those in use when they come back.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.idle().clear();
    }

    /// Sends statements as text, in one request that may be repeated, and gives what all did.
    pub(crate) async fn query(&self, sql: &Sql) -> Result<Reply, Trouble> {
        self.send(sql, How::Text).await?.whole()
    }

    /// Sends statements in one request.
    pub(crate) async fn send(&self, sql: &Sql, how: How) -> Result<Reply, Trouble> {
        self.send_within(sql, how, self.timeout).await
    }

    /// The same, and gives up each connection that does not answer for so long.
    pub(crate) async fn send_within(
        &self,
        sql: &Sql,
        how: How,
        patience: Duration,
    ) -> Result<Reply, Trouble> {
        let (_permit, conn) = self.get(patience).await?;
        let connect = async || self.connect_within(patience).await;
        let (conn, reused) = match conn {
            Some(conn) => (conn, true),
            None => (connect().await.map_err(Trouble::Unsent)?, false),
        };
        let (outcome, conn) = self.run(conn, sql, how, patience).await;
        self.put_back(conn);
        match outcome {
            // The server has ended a connection that idled: it has hardly seen this request, and if
            // it has, the request id makes it harmless to say it again. What the second copy is told need
            // not be true of the first, so the reply says that there was one.
            Err(Trouble::Lost(why))
                if reused && how != How::TextOnce && !why.starts_with(NO_ANSWER) =>
            {
                self.idle().clear();
                let conn = connect().await.map_err(|_| Trouble::Lost(why))?;
                let (again, conn) = self.run(conn, sql, how, patience).await;
                self.put_back(conn);
                again.map(|reply| Reply {
                    repeated: true,
                    ..reply
                })
            }
            outcome => outcome,
        }
    }

    /// A connection for several requests, each answered within `patience`.
    pub(crate) async fn session(&self, patience: Duration) -> Result<Session<'_>, Trouble> {
        let (permit, conn) = self.get(patience).await?;
        let conn = match conn {
            Some(conn) => conn,
            None => {
                let connected = self.connect_within(patience).await;
                connected.map_err(Trouble::Unsent)?
            }
        };
        Ok(Session {
            pool: self,
            conn: Some(conn),
            patience,
            _permit: permit,
        })
    }

    fn put_back(&self, conn: Option<Conn>) {
        if let Some(conn) = conn
            && !self.closed.load(Ordering::SeqCst)
        {
            self.idle().push_back(conn);
        }
    }

    async fn get(
        &self,
        patience: Duration,
    ) -> Result<(SemaphorePermit<'_>, Option<Conn>), Trouble> {
        let permit = timeout(patience, self.permits.acquire()).await;
        let permit = match permit {
            Ok(Ok(permit)) => permit,
            _ => {
                let text = format!("no connection was free within {patience:?}");
                return Err(Trouble::Unsent(
                    Error::new(ErrorKind::Unreachable, text)
                        .with_advice("the server stalls, or pool= is too small"),
                ));
            }
        };
        // Who has little time does not try one idle connection after the other.
        if patience < self.timeout && self.silent.load(Ordering::SeqCst) {
            return Ok((permit, None));
        }
        // The one used last: the others may idle until the server ends them.
        let conn = self.idle().pop_back();
        Ok((permit, conn))
    }

    /// A new connection. Runs on the keeper only.
    pub(crate) async fn connect(&self) -> Result<Conn> {
        self.connect_within(self.timeout).await
    }

    async fn connect_within(&self, patience: Duration) -> Result<Conn> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match timeout(patience, Conn::new(self.opts.clone())).await {
            Ok(Ok(conn)) => Ok(conn),
            Ok(Err(error)) => Err(connecting(error, &self.to)),
            Err(_) => Err(Error::new(
                ErrorKind::Unreachable,
                format!("{} does not answer within {patience:?}", self.to),
            )
            .with_advice("is it MySQL or MariaDB, and does it run?")),
        }
    }

    /// Sends on this connection; gives it back if it can be used again.
    async fn run(
        &self,
        mut conn: Conn,
        sql: &Sql,
        how: How,
        patience: Duration,
    ) -> (Result<Reply, Trouble>, Option<Conn>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (clock, sent) = (Clock::boot(), Clock::boot().now());
        let talking = talk(&mut conn, sql, how == How::Prepared);
        let reply = match timeout(patience, talking).await {
            Ok(reply) => Reply {
                took: clock.now().since(sent),
                ..reply
            },
            // Dropping it closes it, so that nobody reads this reply as the one to something else. The
            // others may be as dead, and each would be waited for as long.
            Err(_) => {
                self.silent.store(true, Ordering::SeqCst);
                if patience >= self.timeout {
                    self.idle().clear();
                }
                let lost = Trouble::Lost(format!("{NO_ANSWER} {patience:?}"));
                return (Err(lost), None);
            }
        };
        if !matches!(reply.failed, Some(Trouble::Lost(_))) {
            self.silent.store(false, Ordering::SeqCst);
        }
        match &reply.failed {
            Some(Trouble::Lost(why)) => (Err(Trouble::Lost(why.clone())), None),
            // A refusal ends its statement, and not the transaction that it is in.
            Some(trouble) if sql.is_transaction() || !trouble.leaves_connection_usable() => {
                if trouble.is_read_only() {
                    // The others lead to the same server.
                    self.idle().clear();
                }
                (Ok(reply), None)
            }
            _ => (Ok(reply), Some(conn)),
        }
    }
}

/// One connection for several requests; closed when it is dropped.
pub(crate) struct Session<'p> {
    pool: &'p Pool,
    /// Until it is lost.
    conn: Option<Conn>,
    /// How long a reply is waited for.
    patience: Duration,
    _permit: SemaphorePermit<'p>,
}

/// Where requests go.
pub(crate) enum Line<'p> {
    /// To any connection, each answered within this time.
    Any(&'p Pool, Duration),
    /// To one and the same.
    One(Session<'p>),
}

impl Line<'_> {
    /// Sends statements in one request.
    pub(crate) async fn send(&mut self, sql: &Sql, how: How) -> Result<Reply, Trouble> {
        let session = match self {
            Self::Any(pool, patience) => return pool.send_within(sql, how, *patience).await,
            Self::One(session) => session,
        };
        let Some(conn) = session.conn.take() else {
            return Err(Trouble::Lost("the connection is lost".to_owned()));
        };
        let (outcome, conn) = session.pool.run(conn, sql, how, session.patience).await;
        session.conn = conn;
        outcome
    }

    /// Sends statements as text, in one request that may be repeated, and gives what all did.
    pub(crate) async fn query(&mut self, sql: &Sql) -> Result<Reply, Trouble> {
        self.send(sql, How::Text).await?.whole()
    }

    /// Lets others use its connection.
    pub(crate) fn keep(self) {
        if let Self::One(session) = self {
            session.pool.put_back(session.conn);
        }
    }
}

/// How the loss of a reply that never came begins.
const NO_ANSWER: &str = "no answer within";

/// Sends and reads everything.
pub(crate) async fn talk(conn: &mut Conn, sql: &Sql, prepared: bool) -> Reply {
    let mut reply = Reply::default();
    let read = match prepared {
        true => {
            let values = Params::Positional(sql.values.clone());
            match conn.exec_iter(sql.text.as_str(), values).await {
                Ok(mut result) => read_sets(&mut result, &mut reply.sets).await,
                Err(error) => Err(error),
            }
        }
        false => match conn.query_iter(sql.inlined()).await {
            Ok(mut result) => read_sets(&mut result, &mut reply.sets).await,
            Err(error) => Err(error),
        },
    };
    reply.failed = read.err().map(Trouble::from);
    reply
}

/// Reads what each statement gave. The last one is left out if it gives no rows and there are others
/// before it; whether it has failed is told all the same.
async fn read_sets<P: mysql_async::prelude::Protocol>(
    result: &mut mysql_async::QueryResult<'_, '_, P>,
    sets: &mut Vec<Set>,
) -> mysql_async::Result<()> {
    loop {
        // Before its rows are read: that goes on to the next statement, which may have failed.
        sets.push(Set {
            rows: Vec::new(),
            affected: result.affected_rows(),
            number: result.last_insert_id(),
        });
        let rows: Vec<Row> = result.collect().await?;
        if let Some(set) = sets.last_mut() {
            set.rows = rows.into_iter().map(Row::unwrap).collect();
        }
        if result.is_empty() {
            // The error of the next statement, if that has failed; it would be taken for one of the
            // next request otherwise.
            return result.next().await.map(drop);
        }
    }
}
