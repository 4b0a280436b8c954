//! Redis: `SET NX PX` and compare-and-delete, on one multiplexed connection that all workers share; a list as
//! the token.

use async_trait::async_trait;
use clinch::{Result, StoreUrl};
use clinch_redis::raw;
use redis::aio::MultiplexedConnection;

use crate::baseline::{Baseline, Engine, HOLDER, TokenPassing, taken, token_timeout};

/// Milliseconds until a key expires if the run dies.
const TTL: u32 = 30_000;

/// Deletes the key if the caller holds it.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub(super) struct Redis {
    url: StoreUrl,
    connection: MultiplexedConnection,
    /// Of [`RELEASE`].
    hash: String,
    /// Prefix of the keys. On a cluster all of them are in one slot.
    prefix: String,
}

impl Redis {
    pub(super) async fn open(url: &StoreUrl, id: &str) -> Result<Option<Self>> {
        let prefix = format!("clinch:floor:{{{id}}}:");
        let Some(mut connection) = raw::connect(url, &prefix).await? else {
            return Ok(None);
        };
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(RELEASE);
        let hash = load.query_async(&mut connection).await;
        Ok(Some(Self {
            url: url.clone(),
            connection,
            hash: hash.map_err(raw::error)?,
            prefix,
        }))
    }
}

#[async_trait]
impl Engine for Redis {
    async fn floor(&self) -> Result<Box<dyn Baseline>> {
        Ok(Box::new(Pairs {
            connection: self.connection.clone(),
            hash: self.hash.clone(),
            prefix: self.prefix.clone(),
        }))
    }

    async fn token(&self, name: &str) -> Result<Option<Box<dyn TokenPassing>>> {
        let key = format!("clinch:baton:{name}");
        // Of its own, because waiting for the token blocks a connection.
        let connection = raw::connect(&self.url, &key).await?;
        Ok(connection.map(|connection| Box::new(List { connection, key }) as _))
    }
}

struct Pairs {
    connection: MultiplexedConnection,
    hash: String,
    prefix: String,
}

impl Pairs {
    async fn run(&mut self, key: &str) -> redis::RedisResult<bool> {
        let mut acquire = redis::cmd("SET");
        acquire.arg(key).arg(HOLDER).arg("NX").arg("PX").arg(TTL);
        let acquired: bool = acquire.query_async(&mut self.connection).await?;
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.hash).arg(1).arg(key).arg(HOLDER);
        let released: bool = release.query_async(&mut self.connection).await?;
        Ok(acquired && released)
    }
}

#[async_trait]
impl Baseline for Pairs {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let key = format!("{}{key}", self.prefix);
        match self.run(&key).await.map_err(raw::error)? {
            true => Ok(()),
            false => Err(taken()),
        }
    }
}

/// A list with one element: `BLPOP` gives it to the client that waits longest.
struct List {
    connection: MultiplexedConnection,
    key: String,
}

impl List {
    async fn run(&mut self, command: &mut redis::Cmd) -> Result<redis::Value> {
        let reply = command.query_async(&mut self.connection).await;
        reply.map_err(raw::error)
    }
}

#[async_trait]
impl TokenPassing for List {
    async fn take(&mut self) -> Result<()> {
        let mut command = redis::cmd("BLPOP");
        match self.run(command.arg(&self.key).arg(30)).await? {
            redis::Value::Nil => Err(token_timeout()),
            _ => Ok(()),
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let mut command = redis::cmd("LPUSH");
        self.run(command.arg(&self.key).arg("x")).await?;
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        self.run(redis::cmd("DEL").arg(&self.key)).await?;
        Ok(())
    }
}
