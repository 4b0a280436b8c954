//! The conformance suite on Redis; each case has servers of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_redis::{QuorumStore, RedisStore};
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::Redis;

fn main() -> std::process::ExitCode {
    let subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(One),
        Box::new(Quorum { all: false }),
        Box::new(Quorum { all: true }),
    ];
    conformance::main(subjects)
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

/// Three independent servers, of which a majority or all must agree.
struct Quorum {
    all: bool,
}

#[async_trait]
impl Subject for Quorum {
    fn name(&self) -> String {
        match self.all {
            true => "redis_quorum_all".into(),
            false => "redis_quorum".into(),
        }
    }

    fn info(&self) -> StoreInfo {
        QuorumStore::describe(self.all)
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Redis::with().append_only("everysec").start()?);
        }
        Ok(Box::new(Three(servers, self.all)))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    /// With all of them, what differs: semaphores, and every promise once more.
    fn wants(&self, case: &Case) -> bool {
        let groups = [
            "exclusion",
            "semaphore",
            "requests",
            "leftovers",
            "promises",
        ];
        !self.all || groups.contains(&case.group)
    }
}

struct Three(Vec<Redis>, bool);

#[async_trait]
impl Place for Three {
    fn url(&self) -> String {
        let hosts: Vec<_> = self
            .0
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()))
            .collect();
        let need = if self.1 { "all" } else { "majority" };
        format!("redis+quorum://{}?need={need}", hosts.join(","))
    }

    async fn restart(&self) -> Result<()> {
        for server in &self.0 {
            server.process().terminate()?;
            server.start_again()?;
        }
        Ok(())
    }

    async fn lose_data(&self) -> Result<bool> {
        for server in &self.0 {
            server.cli(&["FLUSHALL"])?;
        }
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for server in &self.0 {
            left.extend(leftovers(server)?);
        }
        Ok(left)
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
