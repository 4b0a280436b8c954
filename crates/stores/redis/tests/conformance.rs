//! The conformance suite on Redis; each case has a server of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_redis::{GuestStore, RedisStore};
use clinch_testkit::conformance::{self, Place, Subject};
use clinch_testkit::servers::Redis;

fn main() -> std::process::ExitCode {
    let plain = Guest("plain", "redis?layout=plain");
    let redisson = Guest("redisson", "redis?layout=redisson");
    conformance::main(vec![Box::new(One), Box::new(plain), Box::new(redisson)])
}

struct One;

#[async_trait]
impl Subject for One {
    fn name(&self) -> String {
        "redis".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(Server(
            Redis::with().append_only("everysec").start()?,
        )))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }
}

struct Server(Redis);

#[async_trait]
impl Place for Server {
    fn url(&self) -> String {
        self.0.url()
    }

    async fn restart(&self) -> Result<()> {
        self.0.process().terminate()?;
        self.0.start_again()
    }

    async fn lose_data(&self) -> Result<bool> {
        self.0.cli(&["FLUSHALL"])?;
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        leftovers(&self.0)
    }
}

/// Keys of queues and of holders, keys that never end, and subscriptions.
fn leftovers(server: &Redis) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (key, _) in server.dump_keys("*")? {
        let ends = server.cli(&["PTTL", &key])?;
        let idle = key.ends_with('}') && !ends.starts_with('-');
        if !idle {
            left.push(format!("{key}, which ends in {ends} ms"));
        }
    }
    let channels = server.cli(&["PUBSUB", "CHANNELS"])?;
    left.extend(Some(channels).filter(|channels| !channels.trim().is_empty()));
    Ok(left)
}

/// A guest in the locks of other libraries: the layout, and what the store is called.
struct Guest(&'static str, &'static str);

#[async_trait]
impl Subject for Guest {
    fn name(&self) -> String {
        format!("redis_{}", self.0)
    }

    fn info(&self) -> StoreInfo {
        GuestStore::describe(self.1)
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let server = Redis::with().append_only("everysec").start()?;
        Ok(Box::new(GuestServer(Server(server), self.0)))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }
}

struct GuestServer(Server, &'static str);

#[async_trait]
impl Place for GuestServer {
    fn url(&self) -> String {
        format!("{}?layout={}", self.0.url(), self.1)
    }

    async fn restart(&self) -> Result<()> {
        self.0.restart().await
    }

    async fn lose_data(&self) -> Result<bool> {
        self.0.lose_data().await
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.0.lose_data_live().await
    }

    /// Every key but the lists of ended claims, which end by themselves; and subscriptions.
    async fn leftovers(&self) -> Result<Vec<String>> {
        let server = &self.0.0;
        let mut left = Vec::new();
        for (key, _) in server.dump_keys("*")? {
            let ends = server.cli(&["PTTL", &key])?;
            if !key.starts_with("clinch:ended:") || ends.starts_with('-') {
                left.push(format!("{key}, which ends in {ends} ms"));
            }
        }
        let channels = server.cli(&["PUBSUB", "CHANNELS"])?;
        left.extend(Some(channels).filter(|channels| !channels.trim().is_empty()));
        Ok(left)
    }
}
