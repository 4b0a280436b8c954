//! What a lock and a hand-over cost at least, and what the usual lock costs.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{Baton, Floor};
use clinch_core::{Error, ErrorKind, Result, keeper};
use mysql_async::Conn;

use crate::error::Trouble;
use crate::pool::{How, Pool, Reply, talk};
use crate::row::optional;
use crate::sql::Sql;

/// The tables of benchmarks; they are left for the next one.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS clinch_bench (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
     holder VARBINARY(64) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS clinch_bench_classic (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
     holder VARBINARY(64) NOT NULL) ENGINE=InnoDB",
];
const HOLDER: &[u8] = b"the one who holds it";
/// How often the usual lock tries again after a deadlock.
const TRIES: u32 = 100;

async fn make_tables(pool: &Pool) -> Result<()> {
    for table in TABLES {
        let made = pool.query(&Sql::new(table)).await;
        made.map_err(|trouble| trouble.into_error(pool.to()))?;
    }
    Ok(())
}

/// Two updates of one row by its primary key, over the same driver and the same connections.
pub(crate) struct Updates {
    pool: Arc<Pool>,
    /// The row that is there.
    key: Option<u64>,
}

impl Updates {
    pub(crate) async fn new(pool: Arc<Pool>) -> Result<Self> {
        let making = pool.clone();
        keeper::run(async move { make_tables(&making).await }).await?;
        Ok(Self { pool, key: None })
    }

    async fn run(&self, sql: Sql) -> Result<u64> {
        let pool = self.pool.clone();
        keeper::run(async move {
            let reply = pool.send(&sql, How::Prepared).await;
            let reply = reply.and_then(whole);
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
            let make = "INSERT INTO clinch_bench VALUES (?,'') ON DUPLICATE KEY UPDATE holder=''";
            self.run(Sql::new(make).with(key)).await?;
            self.key = Some(key);
        }
        for (new, old) in [(HOLDER, b"".as_slice()), (b"".as_slice(), HOLDER)] {
            let sql = Sql::new("UPDATE clinch_bench SET holder=? WHERE id=? AND holder=?")
                .bytes(new)
                .with(key)
                .bytes(old);
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
    conn: Option<Conn>,
}

impl Classic {
    pub(crate) async fn new(pool: Arc<Pool>) -> Result<Self> {
        let making = pool.clone();
        keeper::run(async move { make_tables(&making).await }).await?;
        Ok(Self { pool, conn: None })
    }
}

#[async_trait]
impl Floor for Classic {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let (pool, conn) = (self.pool.clone(), self.conn.take());
        let conn = keeper::run(async move {
            let mut conn = match conn {
                Some(conn) => conn,
                None => pool.connect().await?,
            };
            for _ in 0..TRIES {
                match classic(&mut conn, key).await {
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

async fn classic(conn: &mut Conn, key: u64) -> Result<(), Trouble> {
    let begin = Sql::new("BEGIN");
    let look = Sql::new("SELECT holder FROM clinch_bench_classic WHERE id=? FOR UPDATE").with(key);
    let take = Sql::new("INSERT INTO clinch_bench_classic VALUES (?,?)")
        .with(key)
        .bytes(HOLDER);
    let commit = Sql::new("COMMIT");
    let give = Sql::new("DELETE FROM clinch_bench_classic WHERE id=? AND holder=?")
        .with(key)
        .bytes(HOLDER);
    for (sql, prepared) in [
        (begin, false),
        (look, true),
        (take, true),
        (commit, false),
        (give, true),
    ] {
        whole(talk(conn, &sql, prepared).await)?;
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
        // Names of user-level locks are short.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let connecting = pool.clone();
        let conn = keeper::run(async move { connecting.connect().await }).await?;
        Ok(Self {
            pool,
            conn: Some(conn),
            lock: format!("clinch.baton.{hash:016x}"),
        })
    }

    async fn ask(&mut self, text: String) -> Result<Option<u64>> {
        let pool = self.pool.clone();
        let Some(mut conn) = self.conn.take() else {
            return Err(Error::new(ErrorKind::Internal, "the connection was lost"));
        };
        let (conn, value) = keeper::run(async move {
            let reply = whole(talk(&mut conn, &Sql::new(text), false).await);
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

fn whole(reply: Reply) -> Result<Reply, Trouble> {
    match reply.failed {
        Some(trouble) => Err(trouble),
        None => Ok(reply),
    }
}
