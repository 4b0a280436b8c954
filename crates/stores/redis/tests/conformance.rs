//! The conformance suite on Redis: one server for each case, and one set of sentinels for all.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_redis::RedisStore;
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::{Redis, Sentinels};

fn main() -> std::process::ExitCode {
    conformance::main(vec![Box::new(One), Box::new(Followed::default())])
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
        leftovers(&self.0, "*", "*")
    }
}

/// The master that sentinels name. Six servers take seconds to start, so the cases share them and
/// have a namespace each.
#[derive(Default)]
struct Followed {
    all: OnceLock<Result<Arc<Sentinels>>>,
    places: AtomicU64,
}

#[async_trait]
impl Subject for Followed {
    fn name(&self) -> String {
        "sentinel".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis+sentinel")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let all = self.all.get_or_init(|| Sentinels::start().map(Arc::new));
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Shared {
            all: all.clone()?,
            namespace: format!("case-{number}-"),
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    /// Each grant and renewal waits for a replica.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Not those that restart the servers: it would be a failover for all others, and a master
    /// without persistence comes back empty. `tests/sentinel.rs` has failovers of its own.
    fn wants(&self, case: &Case) -> bool {
        !matches!(case.name, "rise_over_restarts" | "it_outlives_its_client")
    }
}

struct Shared {
    all: Arc<Sentinels>,
    namespace: String,
}

#[async_trait]
impl Place for Shared {
    fn url(&self) -> String {
        self.all.url()
    }

    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    async fn lose_data(&self) -> Result<bool> {
        let forget =
            "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
        let mine = format!("clinch:*{}*", self.namespace);
        self.all.master()?.cli(&["EVAL", forget, "0", &mine])?;
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        let mine = format!("clinch:*{}*", self.namespace);
        leftovers(self.all.master()?, &mine, &mine)
    }
}

/// Keys of queues and of holders, keys that never end, and subscriptions.
fn leftovers(server: &Redis, keys: &str, channels: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (key, _) in server.dump_keys(keys)? {
        let ends = server.cli(&["PTTL", &key])?;
        let idle = key.ends_with('}') && !ends.starts_with('-');
        if !idle {
            left.push(format!("{key}, which ends in {ends} ms"));
        }
    }
    let channels = server.cli(&["PUBSUB", "CHANNELS", channels])?;
    left.extend(Some(channels).filter(|channels| !channels.trim().is_empty()));
    Ok(left)
}
