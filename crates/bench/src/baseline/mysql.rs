//! MySQL and MariaDB: two autocommit updates of one row by its primary key, over a pool; the five-statement lock;
//! a user-level lock as the token.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use clinch::{Result, StoreUrl};
use clinch_mysql::raw;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Params};
use tokio::sync::Semaphore;

use crate::baseline::{Baseline, Engine, HOLDER, TokenPassing, taken, token_timeout};

/// How often the naive lock is tried again after a deadlock.
const TRIES: u32 = 100;
/// Errors after which a transaction can be tried again: a deadlock, a lock wait that took too long, a changed
/// row, a duplicate key.
const RACES: [u16; 4] = [1213, 1205, 1020, 1062];

pub(super) struct MySql {
    pool: Arc<Pool>,
    id: String,
    /// Tables that were made.
    tables: Mutex<Vec<String>>,
}

impl MySql {
    pub(super) fn open(url: &StoreUrl, id: &str) -> Result<Self> {
        let raw::Settings { options, pool } = raw::settings(url)?;
        Ok(Self {
            pool: Arc::new(Pool {
                options,
                idle: Mutex::default(),
                permits: Semaphore::new(pool),
            }),
            id: id.to_owned(),
            tables: Mutex::default(),
        })
    }

    /// Makes a table of this run, unless it is there.
    async fn table(&self, kind: &str) -> Result<String> {
        let table = format!("clinch_bench_{kind}{}", self.id);
        if !lock(&self.tables).contains(&table) {
            let sql = format!(
                "CREATE TABLE IF NOT EXISTS {table} (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
                 holder VARBINARY(64) NOT NULL) ENGINE=InnoDB"
            );
            lock(&self.tables).push(table.clone());
            self.pool.change(&sql, ()).await?;
        }
        Ok(table)
    }
}

#[async_trait]
impl Engine for MySql {
    async fn floor(&self) -> Result<Box<dyn Baseline>> {
        let table = self.table("").await?;
        let pool = self.pool.clone();
        Ok(Box::new(Updates {
            insert: format!("INSERT INTO {table} VALUES (?,'') ON DUPLICATE KEY UPDATE holder=''"),
            update: format!("UPDATE {table} SET holder=? WHERE id=? AND holder=?"),
            pool,
            key: None,
        }))
    }

    async fn naive_lock(&self) -> Result<Option<Box<dyn Baseline>>> {
        let table = self.table("classic_").await?;
        Ok(Some(Box::new(Transactions {
            pool: self.pool.clone(),
            conn: None,
            select: format!("SELECT holder FROM {table} WHERE id=? FOR UPDATE"),
            insert: format!("INSERT INTO {table} VALUES (?,?)"),
            delete: format!("DELETE FROM {table} WHERE id=? AND holder=?"),
        })))
    }

    async fn token(&self, name: &str) -> Result<Option<Box<dyn TokenPassing>>> {
        // Names of user-level locks are short. All processes of a run are of one build, so they hash alike.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Ok(Some(Box::new(UserLock {
            conn: self.pool.connect().await?,
            name: format!("clinch.baton.{:016x}", hasher.finish()),
        })))
    }

    async fn close(&self) -> Result<()> {
        let tables = std::mem::take(&mut *lock(&self.tables));
        for table in tables {
            let sql = format!("DROP TABLE IF EXISTS {table}");
            self.pool.change(&sql, ()).await?;
        }
        Ok(())
    }
}

/// As many connections as a store of this URL would use. The driver's own pool resets a connection after each
/// use, which costs a round trip.
struct Pool {
    options: Opts,
    idle: Mutex<Vec<Conn>>,
    permits: Semaphore,
}

impl Pool {
    async fn connect(&self) -> Result<Conn> {
        let conn = Conn::new(self.options.clone()).await;
        conn.map_err(raw::error)
    }

    /// Runs one prepared statement; the number of rows that it changed.
    async fn change(&self, sql: &str, values: impl Into<Params> + Send) -> Result<u64> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| crate::internal("the pool is closed"))?;
        let idle = lock(&self.idle).pop();
        let mut conn = match idle {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        conn.exec_drop(sql, values).await.map_err(raw::error)?;
        let changed = conn.affected_rows();
        lock(&self.idle).push(conn);
        Ok(changed)
    }
}

struct Updates {
    pool: Arc<Pool>,
    insert: String,
    update: String,
    /// The row that is there.
    key: Option<u64>,
}

#[async_trait]
impl Baseline for Updates {
    async fn pair(&mut self, key: u64) -> Result<()> {
        if self.key != Some(key) {
            self.pool.change(&self.insert, (key,)).await?;
            self.key = Some(key);
        }
        for (new, old) in [(HOLDER, ""), ("", HOLDER)] {
            if self.pool.change(&self.update, (new, key, old)).await? != 1 {
                return Err(taken());
            }
        }
        Ok(())
    }
}

/// `BEGIN`, `SELECT … FOR UPDATE`, `INSERT`, `COMMIT`; and `DELETE`. The transaction needs a connection of its own.
struct Transactions {
    pool: Arc<Pool>,
    conn: Option<Conn>,
    select: String,
    insert: String,
    delete: String,
}

impl Transactions {
    async fn run(&self, conn: &mut Conn, key: u64) -> mysql_async::Result<()> {
        conn.query_drop("BEGIN").await?;
        conn.exec_drop(self.select.as_str(), (key,)).await?;
        conn.exec_drop(self.insert.as_str(), (key, HOLDER)).await?;
        conn.query_drop("COMMIT").await?;
        conn.exec_drop(self.delete.as_str(), (key, HOLDER)).await
    }
}

#[async_trait]
impl Baseline for Transactions {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.pool.connect().await?,
        };
        for _ in 0..TRIES {
            match self.run(&mut conn, key).await {
                Ok(()) => {
                    self.conn = Some(conn);
                    return Ok(());
                }
                Err(mysql_async::Error::Server(error)) if RACES.contains(&error.code) => {
                    let _ = conn.query_drop("ROLLBACK").await;
                }
                Err(error) => return Err(raw::error(error)),
            }
        }
        Err(crate::internal("deadlocks without end"))
    }
}

/// A user-level lock: the client that waits longest gets it.
struct UserLock {
    conn: Conn,
    name: String,
}

#[async_trait]
impl TokenPassing for UserLock {
    async fn take(&mut self) -> Result<()> {
        let sql = "SELECT GET_LOCK(?,30)";
        let got = self.conn.exec_first(sql, (&self.name,)).await;
        match got.map_err(raw::error)? {
            Some(Some(1_u8)) => Ok(()),
            _ => Err(token_timeout()),
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let sql = "SELECT RELEASE_LOCK(?)";
        let released = self.conn.exec_drop(sql, (&self.name,)).await;
        released.map_err(raw::error)
    }

    async fn remove(&mut self) -> Result<()> {
        self.pass().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
