//! The conformance suite on Redis. Each case has servers of its own, except with sentinels and on a
//! cluster, which are one set for all.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_redis::{GuestStore, QuorumStore, RedisStore};
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::{Cluster, Redis, Sentinels};

fn main() -> std::process::ExitCode {
    conformance::main(vec![
        Box::new(One),
        Box::new(Followed::default()),
        Box::new(Clustered::default()),
        Box::new(ClusterOfItsOwn),
        Box::new(Quorum { all: false }),
        Box::new(Quorum { all: true }),
        Box::new(Guest("plain", "redis?layout=plain")),
        Box::new(Guest("redisson", "redis?layout=redisson")),
    ])
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

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
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

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
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

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    /// Each grant and renewal waits for several servers, which share the machine with the cases.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
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
            left.extend(leftovers(server, "*", "*")?);
        }
        Ok(left)
    }
}

/// Keys of queues and of holders, keys that never end but those of the highest numbers, and subscriptions.
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

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
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

/// A cluster that the cases share, with a namespace each.
#[derive(Default)]
struct Clustered {
    all: OnceLock<Result<Arc<Cluster>>>,
    places: AtomicU64,
}

/// A cluster for each case: for those that restart it.
struct ClusterOfItsOwn;

fn restarts(case: &Case) -> bool {
    matches!(case.name, "rise_over_restarts" | "it_outlives_its_client")
}

#[async_trait]
impl Subject for Clustered {
    fn name(&self) -> String {
        "cluster".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis+cluster")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let all = self.all.get_or_init(|| Cluster::start().map(Arc::new));
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(InCluster {
            all: all.clone()?,
            namespace: format!("case-{number}-"),
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    /// Each grant and renewal waits for a replica, and six servers share the machine with the cases.
    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Those that restart the servers have a cluster of their own. Names of different slots cannot
    /// share a call, so renewals share requests here, not commands, which is what is counted.
    fn wants(&self, case: &Case) -> bool {
        !restarts(case) && case.name != "many_holds_renew_together"
    }
}

#[async_trait]
impl Subject for ClusterOfItsOwn {
    fn name(&self) -> String {
        "cluster_of_its_own".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis+cluster")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let all = Cluster::start_with(|node| node.append_only("everysec"))?;
        Ok(Box::new(InCluster {
            all: Arc::new(all),
            namespace: "case-".into(),
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    fn wants(&self, case: &Case) -> bool {
        restarts(case)
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

    /// The other namespaces keep theirs.
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
