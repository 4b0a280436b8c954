//! The conformance suite on Redis. Each case has its own servers, except with sentinels and on a
//! cluster, where the cases share one set.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_redis::{GuestStore, QuorumStore, RedisStore};
use clinch_testkit::conformance::{self, Case, Place};
use clinch_testkit::servers::{Cluster, Redis, Sentinels};
use clinch_testkit::subjects::restarts;

type OnServers = clinch_testkit::subjects::OnServers<common::Ours>;

fn main() -> std::process::ExitCode {
    conformance::main(vec![
        Box::new(OnServers::own(
            "redis",
            RedisStore::describe("redis"),
            |_| lasting().map(Server),
        )),
        Box::new(sentinel()),
        Box::new(cluster()),
        Box::new(own_cluster()),
        Box::new(quorum("redis_quorum", false)),
        // What differs where all must agree: semaphores, and every promise once more.
        Box::new(quorum("redis_quorum_all", true).cases(differs_with_all)),
        Box::new(guest("redis_plain", "plain", "redis?layout=plain")),
        Box::new(guest("redis_redisson", "redisson", "redis?layout=redisson")),
    ])
}

/// A server that keeps its data over restarts.
fn lasting() -> Result<Redis> {
    Redis::with().append_only("everysec").start()
}

/// The master that sentinels name. Six servers take seconds to start, so the cases share them and
/// have a namespace each. Not the cases that restart the servers: that would be a failover for all
/// others, and a master without persistence restarts empty. `tests/sentinel.rs` has failovers.
fn sentinel() -> OnServers {
    let info = RedisStore::describe("redis+sentinel");
    let place = |all, number| {
        Ok(Shared {
            all,
            namespace: format!("case-{number}-"),
        })
    };
    OnServers::shared("sentinel", info, Sentinels::start, place)
        // Each grant and renewal waits for a replica.
        .lease(Duration::from_secs(1))
        .cases(|case| !restarts(case))
}

/// A cluster that the cases share, with a namespace each. Names of different slots cannot share a
/// call, so renewals share requests here, not commands, which is what one case counts.
fn cluster() -> OnServers {
    let info = RedisStore::describe("redis+cluster");
    let place = |all, number| {
        Ok(InCluster {
            all,
            namespace: format!("case-{number}-"),
        })
    };
    OnServers::shared("cluster", info, Cluster::start, place)
        // Each grant and renewal waits for a replica, and six servers share the machine.
        .lease(Duration::from_secs(2))
        .cases(|case| !restarts(case) && case.name != "many_holds_renew_together")
}

/// A cluster for each case: for cases that restart it.
fn own_cluster() -> OnServers {
    let info = RedisStore::describe("redis+cluster");
    let place = |_| {
        let all = Cluster::start_with(|node| node.append_only("everysec"))?;
        Ok(InCluster {
            all: Arc::new(all),
            namespace: "case-".into(),
        })
    };
    OnServers::own("cluster_of_its_own", info, place).cases(restarts)
}

/// Three independent servers, of which a majority or all must agree.
fn quorum(name: &'static str, all: bool) -> OnServers {
    let place = move |_| {
        let servers: Result<_> = (0..3).map(|_| lasting()).collect();
        Ok(Three(servers?, all))
    };
    // Each grant and renewal waits for several servers, which share the machine with the cases.
    OnServers::own(name, QuorumStore::describe(all), place).lease(Duration::from_secs(1))
}

fn differs_with_all(case: &Case) -> bool {
    let groups = [
        "exclusion",
        "semaphore",
        "requests",
        "leftovers",
        "promises",
    ];
    groups.contains(&case.group)
}

/// Locks in the layout of another library.
fn guest(name: &'static str, layout: &'static str, scheme: &'static str) -> OnServers {
    OnServers::own(name, GuestStore::describe(scheme), move |_| {
        Ok(GuestServer(Server(lasting()?), layout))
    })
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

/// A namespace at the master that sentinels name.
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

/// The servers of a quorum, and whether all must agree.
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
            left.extend(leftovers(server, "*", "*")?);
        }
        Ok(left)
    }
}

/// Keys of queues and of holders, keys without expiry except those of the highest numbers, and
/// subscriptions.
fn leftovers(server: &Redis, keys: &str, channels: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (key, _) in server.dump_keys(keys)? {
        let ends = server.cli(&["PTTL", &key])?;
        let idle = key.ends_with('}') && !ends.starts_with('-');
        let stays = key.ends_with("}highest");
        if !idle && !stays {
            left.push(format!("{key}, which ends in {ends} ms"));
        }
    }
    let channels = server.cli(&["PUBSUB", "CHANNELS", channels])?;
    left.extend(Some(channels).filter(|channels| !channels.trim().is_empty()));
    Ok(left)
}

/// A server and the layout of another library.
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

    /// Every key except the lists of ended claims, which expire; and subscriptions.
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

/// A namespace in a cluster.
struct InCluster {
    all: Arc<Cluster>,
    namespace: String,
}

impl InCluster {
    fn masters(&self) -> Result<Vec<&Redis>> {
        let mut masters = Vec::new();
        for node in self.all.nodes() {
            let info = node.info("replication")?;
            if info.get("role").is_some_and(|role| role == "master") {
                masters.push(node);
            }
        }
        Ok(masters)
    }
}

#[async_trait]
impl Place for InCluster {
    fn url(&self) -> String {
        self.all.url()
    }

    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    async fn restart(&self) -> Result<()> {
        for node in self.all.nodes() {
            node.process().terminate()?;
        }
        for node in self.all.nodes() {
            node.start_again()?;
        }
        self.all.wait_ok()?;
        self.all.wait_synced()
    }

    /// Only in this namespace.
    async fn lose_data(&self) -> Result<bool> {
        for node in self.masters()? {
            let mine = format!("clinch:{{{}:*", self.namespace);
            for key in node.command(&["KEYS", &mine])?.texts() {
                node.cli(&["DEL", &key])?;
            }
        }
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        let mine = format!("clinch:*{}*", self.namespace);
        let mut left = Vec::new();
        for node in self.masters()? {
            left.extend(leftovers(node, &mine, &mine)?);
        }
        for node in self.all.nodes() {
            let channels = node.cli(&["PUBSUB", "SHARDCHANNELS", &mine])?;
            left.extend(Some(channels).filter(|channels| !channels.trim().is_empty()));
        }
        Ok(left)
    }
}
