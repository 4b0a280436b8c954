//! What a lock and a hand-over cost at least, and what the usual lock costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use clinch_core::store::{Baton, Floor};
use clinch_core::{ClientId, Error, ErrorKind, Result, keeper};
use mysql_async::Conn;

use crate::error::Trouble;
use crate::pool::{How, Pool, Reply, talk};
use crate::row::optional;
use crate::sql::{Sql, user_lock};

const HOLDER: &[u8] = b"the one who holds it";
/// How often the usual lock tries again after a deadlock.
const TRIES: u32 = 100;

/// The tables of a benchmark: of one client, and gone when it closes.
#[derive(Debug)]
pub(crate) struct Tables {
    plain: String,
    classic: String,
    made: AtomicBool,
}

impl Tables {
    pub(crate) fn of(client: ClientId) -> Arc<Self> {
        Arc::new(Self {
            plain: format!("clinch_bench_{client}"),
            classic: format!("clinch_bench_classic_{client}"),
            made: AtomicBool::default(),
        })
    }

    async fn make(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<()> {
        self.made.store(true, Ordering::SeqCst);
        let text = |table: &str| {
            format!(
                "CREATE TABLE IF NOT EXISTS {table} (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
                 holder VARBINARY(64) NOT NULL) ENGINE=InnoDB"
            )
        };
        self.run(pool, text).await
    }

    /// Removes them, if they were made.
    pub(crate) async fn remove(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<()> {
        match self.made.swap(false, Ordering::SeqCst) {
            true => {
                self.run(pool, |table| format!("DROP TABLE IF EXISTS {table}"))
                    .await
            }
            false => Ok(()),
        }
    }

    async fn run(&self, pool: &Arc<Pool>, text: impl Fn(&str) -> String) -> Result<()> {
        let texts = [text(&self.plain), text(&self.classic)];
        let pool = pool.clone();
        keeper::run(async move {
            for text in texts {
                let done = pool.query(&Sql::new(text)).await;
                done.map_err(|trouble| trouble.into_error(pool.to()))?;
            }
            Ok(())
        })
        .await
    }
}

/// Two updates of one row by its primary key, over the same driver and the same connections.
pub(crate) struct Updates {
    pool: Arc<Pool>,
    table: String,
    /// The row that is there.
    key: Option<u64>,
}

impl Updates {
    pub(crate) async fn new(pool: Arc<Pool>, tables: &Arc<Tables>) -> Result<Self> {
        tables.make(&pool).await?;
        Ok(Self {
            pool,
            table: tables.plain.clone(),
            key: None,
        })
    }

    async fn run(&self, sql: Sql) -> Result<u64> {
        let pool = self.pool.clone();
        keeper::run(async move {
            let reply = pool.send(&sql, How::Prepared).await;
            let reply = reply.and_then(Reply::whole);
            let reply = reply.map_err(|trouble| trouble.into_error(pool.to()))?;
            Ok(reply.affected(0).unwrap_or(0))
        })
        .await
    }
}

#[async_trait]
impl Floor for Updates {
    async fn pair(&mut self, key: u64) -> Result<()> {
        if self.key != Some(key) {
            let table = &self.table;
            let make =
                format!("INSERT INTO {table} VALUES (?,'') ON DUPLICATE KEY UPDATE holder=''");
            self.run(Sql::new(make).with(key)).await?;
            self.key = Some(key);
        }
        for (new, old) in [(HOLDER, b"".as_slice()), (b"".as_slice(), HOLDER)] {
            let table = &self.table;
            let sql = format!("UPDATE {table} SET holder=? WHERE id=? AND holder=?");
            let sql = Sql::new(sql).bytes(new).with(key).bytes(old);
            if self.run(sql).await? != 1 {
                return Err(Error::new(ErrorKind::Internal, "the row was taken"));
            }
        }
        Ok(())
    }
}

/// The lock that people write: BEGIN, SELECT … FOR UPDATE, INSERT, COMMIT; and DELETE. On a
/// connection of its own, as the transaction needs.
pub(crate) struct Classic {
    pool: Arc<Pool>,
    table: String,
    conn: Option<Conn>,
}

impl Classic {
    pub(crate) async fn new(pool: Arc<Pool>, tables: &Arc<Tables>) -> Result<Self> {
        tables.make(&pool).await?;
        Ok(Self {
            pool,
            table: tables.classic.clone(),
            conn: None,
        })
    }
}

#[async_trait]
impl Floor for Classic {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let (pool, conn) = (self.pool.clone(), self.conn.take());
        let table = self.table.clone();
        let conn = keeper::run(async move {
            let mut conn = match conn {
                Some(conn) => conn,
                None => pool.connect().await?,
            };
            for _ in 0..TRIES {
                match classic(&mut conn, &table, key).await {
                    Ok(()) => return Ok(conn),
                    Err(trouble) if trouble.is_race() => {
                        let _ = talk(&mut conn, &Sql::new("ROLLBACK"), false).await;
                    }
                    Err(trouble) => return Err(trouble.into_error(pool.to())),
                }
            }
            Err(Error::new(ErrorKind::Internal, "deadlocks without end"))
        })
        .await?;
        self.conn = Some(conn);
        Ok(())
    }
}

async fn classic(conn: &mut Conn, table: &str, key: u64) -> Result<(), Trouble> {
    let begin = Sql::new("BEGIN");
    let look = Sql::new(format!("SELECT holder FROM {table} WHERE id=? FOR UPDATE")).with(key);
    let take = Sql::new(format!("INSERT INTO {table} VALUES (?,?)"))
        .with(key)
        .bytes(HOLDER);
    let commit = Sql::new("COMMIT");
    let give = Sql::new(format!("DELETE FROM {table} WHERE id=? AND holder=?"))
        .with(key)
        .bytes(HOLDER);
    for (sql, prepared) in [
        (begin, false),
        (look, true),
        (take, true),
        (commit, false),
        (give, true),
    ] {
        talk(conn, &sql, prepared).await.whole()?;
    }
    Ok(())
}

/// A user-level lock: it is free, or somebody has it. Who waits longest gets it.
pub(crate) struct LockBaton {
    pool: Arc<Pool>,
    conn: Option<Conn>,
    lock: String,
}

impl LockBaton {
    pub(crate) async fn connect(pool: Arc<Pool>, name: &str) -> Result<Self> {
        let connecting = pool.clone();
        let conn = keeper::run(async move { connecting.connect().await }).await?;
        Ok(Self {
            pool,
            conn: Some(conn),
            lock: user_lock("baton", [name.as_bytes()]),
        })
    }

    async fn ask(&mut self, text: String) -> Result<Option<u64>> {
        let pool = self.pool.clone();
        let Some(mut conn) = self.conn.take() else {
            return Err(Error::new(ErrorKind::Internal, "the connection was lost"));
        };
        let (conn, value) = keeper::run(async move {
            let reply = talk(&mut conn, &Sql::new(text), false).await.whole();
            let reply = reply.map_err(|trouble| trouble.into_error(pool.to()))?;
            Ok((conn, reply.into_first_value()))
        })
        .await?;
        self.conn = Some(conn);
        Ok(value.and_then(optional).flatten())
    }
}

#[async_trait]
impl Baton for LockBaton {
    async fn take(&mut self) -> Result<()> {
        match self
            .ask(format!("SELECT GET_LOCK('{}',30)", self.lock))
            .await?
        {
            Some(1) => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Unreachable,
                "nobody passed the token",
            )),
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let give = format!("SELECT RELEASE_LOCK('{}')", self.lock);
        self.ask(give).await.map(drop)
    }

    async fn remove(&mut self) -> Result<()> {
        self.pass().await
    }
}
