//! A row lock inside the caller's own transaction.

use std::fmt::Write as _;

use clinch_core::{Error, ErrorKind, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Params, Transaction, Value};

use super::refusal::{LOCK_WAIT, NOT_WAITED};
use super::{ident, refusal, statement};

/// `SELECT … FOR UPDATE`: a lock that is a row lock, held until your transaction ends.
///
/// **It promises** that no other transaction changes, deletes or locks this row before yours has
/// ended, and that it is free at once after commit, rollback, a killed connection or a dead client
/// (as soon as the server notices that one). Waiting costs a connection, no polling.
///
/// **It does not promise** anything beyond the transaction: not for work at other systems, since
/// the server may have ended the transaction (a deadlock, `KILL`, `wait_timeout`, a restart) while
/// you work, and you learn it at your next statement. There is no lease, no token and no order of
/// waiters. A plain `SELECT` of others is not stopped. In REPEATABLE READ, to lock a row that does
/// not exist locks the gap where it would be, and two who then insert it deadlock: use READ
/// COMMITTED, or insert first. Look rows up by an indexed column, or all rows are locked.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # server.sql("CREATE TABLE accounts (id INT PRIMARY KEY, balance INT)")?;
/// # server.sql("INSERT INTO accounts VALUES (7, 100)")?;
/// # let url = server.url();
/// use clinch_mysql::patterns::{Locked, RowLock, Wait};
/// use mysql_async::{Conn, TxOpts, prelude::Queryable};
/// let accounts = RowLock::new("accounts", "id")?.wait(Wait::Seconds(5));
/// let mut conn = Conn::from_url(&url).await?;
/// let mut tx = conn.start_transaction(TxOpts::default()).await?;
/// if accounts.lock(&mut tx, 7).await? == Locked::Yes {
///     tx.query_drop("UPDATE accounts SET balance = balance - 30 WHERE id = 7").await?;
/// }
/// tx.commit().await?; // the lock ends here
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct RowLock {
    table: String,
    key: String,
    wait: Wait,
}

/// How long a [`RowLock`] waits for another transaction's.
///
/// ```
/// use clinch_mysql::patterns::{RowLock, Wait};
/// let impatient = RowLock::new("accounts", "id")?.wait(Wait::No);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// As long as the server's `innodb_lock_wait_timeout` says, which is 50 s by default.
    #[default]
    Server,
    /// This number of seconds.
    Seconds(u32),
    /// Not at all.
    No,
}

/// What became of a [`RowLock`].
///
/// ```
/// use clinch_mysql::patterns::Locked;
/// assert_ne!(Locked::Busy, Locked::NoSuchRow);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Locked {
    /// It is locked until the transaction ends.
    Yes,
    /// Another transaction had it for as long as we waited; the transaction goes on without it.
    Busy,
    /// There is no such row.
    NoSuchRow,
}

impl RowLock {
    /// Rows of this table, known by this column, which must be unique and indexed.
    pub fn new(table: &str, key: &str) -> Result<Self> {
        Ok(Self {
            table: ident::table(table)?,
            key: ident::column(key)?,
            wait: Wait::Server,
        })
    }

    /// How long to wait for others.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Locks one row until the transaction ends.
    ///
    /// If its future is dropped, the lock may still be taken: drop the connection, with which the
    /// transaction and its locks end.
    pub async fn lock(
        &self,
        tx: &mut Transaction<'_>,
        key: impl Into<Value> + Send,
    ) -> Result<Locked> {
        statement::in_step(tx)?;
        let mut sql = format!(
            "SELECT 1 FROM {} WHERE {} = ? FOR UPDATE",
            self.table, self.key
        );
        match self.wait {
            Wait::Server => {}
            Wait::No => sql += " NOWAIT",
            Wait::Seconds(seconds) if is_mariadb(tx) => {
                // Writing to a text cannot fail.
                let _ = write!(sql, " WAIT {seconds}");
            }
            Wait::Seconds(seconds) => return lock_within(tx, &sql, key.into(), seconds).await,
        }
        select(tx, &sql, key.into()).await
    }

    /// Locks the first row whose `column` has this value and that is not locked; returns its key,
    /// or `None` if there is none, be it that there are no such rows or that all are locked.
    ///
    /// This is how workers take jobs from a table without waiting for each other (`SKIP LOCKED`,
    /// MariaDB 10.6 and MySQL 8). It takes an index on the column, followed by the key; without,
    /// each worker locks what it skips. Use READ COMMITTED.
    ///
    /// ```
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = clinch_testkit::servers::MariaDb::start()?;
    /// # server.sql("CREATE TABLE jobs (id INT PRIMARY KEY, state VARCHAR(9), KEY (state, id))")?;
    /// # server.sql("INSERT INTO jobs VALUES (1, 'new'), (2, 'new')")?;
    /// # let url = server.url();
    /// use clinch_mysql::patterns::RowLock;
    /// use mysql_async::{Conn, IsolationLevel, TxOpts};
    /// let jobs = RowLock::new("jobs", "id")?;
    /// let (mut a, mut b) = (Conn::from_url(&url).await?, Conn::from_url(&url).await?);
    /// let mut options = TxOpts::default();
    /// options.with_isolation_level(IsolationLevel::ReadCommitted);
    /// let mut a = a.start_transaction(options.clone()).await?;
    /// let mut b = b.start_transaction(options).await?;
    /// assert_eq!(jobs.first_free::<u32>(&mut a, "state", "new").await?, Some(1));
    /// assert_eq!(jobs.first_free::<u32>(&mut b, "state", "new").await?, Some(2));
    /// # a.rollback().await?;
    /// # b.rollback().await?;
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    pub async fn first_free<K>(
        &self,
        tx: &mut Transaction<'_>,
        column: &str,
        value: impl Into<Value> + Send,
    ) -> Result<Option<K>>
    where
        K: mysql_async::prelude::FromValue + Send + 'static,
    {
        let (table, key) = (&self.table, &self.key);
        let column = ident::column(column)?;
        let sql = format!(
            "SELECT {key} FROM {table} WHERE {column} = ? ORDER BY {key} LIMIT 1 \
             FOR UPDATE SKIP LOCKED"
        );
        statement::read(tx, &sql, vec![value.into()]).await
    }
}

async fn select(tx: &mut Transaction<'_>, sql: &str, key: Value) -> Result<Locked> {
    let row: Result<Option<u8>, _> = tx.exec_first(sql, Params::from(vec![key])).await;
    match row {
        Ok(Some(_)) => Ok(Locked::Yes),
        Ok(None) => Ok(Locked::NoSuchRow),
        Err(e) if matches!(refusal::code(&e), Some(LOCK_WAIT | NOT_WAITED)) => {
            // With innodb_rollback_on_timeout all of it is gone, and what followed would be
            // committed statement by statement.
            match statement::ask_in_transaction(tx).await? {
                true => Ok(Locked::Busy),
                false => Err(rolled_back()),
            }
        }
        Err(e) => Err(refusal::of_statement(e, false)),
    }
}

/// For MySQL, which has no `WAIT`: the limit is one of the session.
///
/// If the future is dropped on the way, the limit stays; but so does the answer that is to come,
/// and the connection is of no more use.
async fn lock_within(
    tx: &mut Transaction<'_>,
    sql: &str,
    key: Value,
    seconds: u32,
) -> Result<Locked> {
    let failed = |e| refusal::of_statement(e, false);
    let old: Option<u64> = tx
        .query_first("SELECT @@SESSION.innodb_lock_wait_timeout")
        .await
        .map_err(failed)?;
    set_wait(tx, seconds.max(1).into()).await?;
    let locked = select(tx, sql, key).await;
    if let Some(old) = old {
        set_wait(tx, old).await?;
    }
    locked
}

async fn set_wait(tx: &mut Transaction<'_>, seconds: u64) -> Result<()> {
    let set = format!("SET SESSION innodb_lock_wait_timeout = {seconds}");
    let set = tx.query_drop(set).await;
    set.map_err(|e| refusal::of_statement(e, false))
}

/// MySQL has not come to version 10.
fn is_mariadb(tx: &Transaction<'_>) -> bool {
    tx.server_version() >= (10, 0, 0)
}

fn rolled_back() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the row is locked, and the server has rolled the transaction back",
    )
    .with_store("mysql")
    .with_advice("begin the transaction again; innodb_rollback_on_timeout is on")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clinch_testkit::servers::MariaDb;
    use mysql_async::{Conn, TxOpts};

    /// The way of MySQL also works on MariaDB, and leaves the session as it was.
    #[tokio::test]
    async fn the_wait_of_a_session_is_put_back() {
        let server = MariaDb::start().unwrap();
        server
            .sql("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
            .unwrap();
        let mut a = Conn::from_url(server.url()).await.unwrap();
        let mut b = Conn::from_url(server.url()).await.unwrap();
        let mut a = a.start_transaction(TxOpts::default()).await.unwrap();
        let mut b = b.start_transaction(TxOpts::default()).await.unwrap();
        let sql = "SELECT 1 FROM t WHERE id = ? FOR UPDATE";
        let lock = |seconds| (sql, Value::from(1), seconds);
        let (sql, key, seconds) = lock(1);
        let first = lock_within(&mut a, sql, key.clone(), seconds).await;
        assert_eq!(first.unwrap(), Locked::Yes);
        let second = lock_within(&mut b, sql, key.clone(), seconds).await;
        assert_eq!(second.unwrap(), Locked::Busy);
        let wait: Option<u32> = b
            .query_first("SELECT @@SESSION.innodb_lock_wait_timeout")
            .await
            .unwrap();
        assert_eq!(wait, Some(50));
        a.rollback().await.unwrap();
        let second = lock_within(&mut b, sql, key, seconds).await;
        assert_eq!(second.unwrap(), Locked::Yes);
        b.rollback().await.unwrap();
    }
}
