//! The conformance suite on Redis. Each case has a server of its own, or a namespace of its own in
//! the one cluster of the run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_redis::RedisStore;
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::{Cluster, Redis};

fn main() -> std::process::ExitCode {
    conformance::main(vec![Box::new(One), Box::new(Shared), Box::new(Restarted)])
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

/// The one cluster of the run.
struct Shared;

/// A cluster for each case: for those that restart it.
struct Restarted;

#[async_trait]
impl Subject for Shared {
    fn name(&self) -> String {
        "redis_cluster".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis+cluster")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(InCluster::new(shared_cluster()?)))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    /// A restart of the one cluster would fail the other cases. Names of different slots cannot
    /// share a call, so renewals share requests there, not commands, which is what is counted.
    fn wants(&self, case: &Case) -> bool {
        !restarts(case) && case.name != "many_holds_renew_together"
    }
}

#[async_trait]
impl Subject for Restarted {
    fn name(&self) -> String {
        "redis_cluster_restarted".into()
    }

    fn info(&self) -> StoreInfo {
        RedisStore::describe("redis+cluster")
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let cluster = Cluster::start_with(|node| node.append_only("everysec"))?;
        Ok(Box::new(InCluster::new(Arc::new(cluster))))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_redis::open(&url.parse()?, context).await
    }

    fn wants(&self, case: &Case) -> bool {
        restarts(case)
    }
}

fn restarts(case: &Case) -> bool {
    [
        ("tokens", "rise_over_restarts"),
        ("lock_delay", "it_outlives_its_client"),
    ]
    .contains(&(case.group, case.name))
}

/// Started by the first case that needs it, and ended with the process.
fn shared_cluster() -> Result<Arc<Cluster>> {
    static CLUSTER: OnceLock<Mutex<Option<Arc<Cluster>>>> = OnceLock::new();
    let mut cluster = CLUSTER.get_or_init(Mutex::default).lock().unwrap();
    match &*cluster {
        Some(cluster) => Ok(cluster.clone()),
        None => Ok(cluster.insert(Arc::new(Cluster::start()?)).clone()),
    }
}

/// A namespace in a cluster.
struct InCluster {
    cluster: Arc<Cluster>,
    namespace: String,
}

impl InCluster {
    fn new(cluster: Arc<Cluster>) -> Self {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        Self {
            cluster,
            namespace: format!("case-{number}"),
        }
    }

    /// The keys of the namespace, each with its master.
    fn keys(&self) -> Result<Vec<(&Redis, String)>> {
        let mut keys = Vec::new();
        for node in self.cluster.nodes() {
            if node
                .info("replication")?
                .get("role")
                .is_some_and(|role| role == "master")
            {
                let pattern = format!("clinch:{{{}:*", self.namespace);
                let found = node.command(&["KEYS", &pattern])?.texts();
                keys.extend(found.into_iter().map(|key| (node, key)));
            }
        }
        Ok(keys)
    }
}

#[async_trait]
impl Place for InCluster {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    async fn restart(&self) -> Result<()> {
        for node in self.cluster.nodes() {
            node.process().terminate()?;
        }
        for node in self.cluster.nodes() {
            node.start_again()?;
        }
        self.cluster.wait_ok()?;
        self.cluster.wait_synced()
    }

    /// The other namespaces keep theirs.
    async fn lose_data(&self) -> Result<bool> {
        for (node, key) in self.keys()? {
            node.cli(&["DEL", &key])?;
        }
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    /// Keys that never end, that hold more than an idle state, or are none of ours; subscriptions.
    async fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (node, key) in self.keys()? {
            let ends = node.cli(&["PTTL", &key])?;
            let parts = node.cli(&["ZCARD", &key])?;
            if !key.ends_with('}') || ends.starts_with('-') || parts != "1" {
                left.push(format!("{key}, {parts} parts, which ends in {ends} ms"));
            }
        }
        for node in self.cluster.nodes() {
            for kind in ["CHANNELS", "SHARDCHANNELS"] {
                let channels = node.command(&["PUBSUB", kind])?.texts();
                let ours = format!("{}:", self.namespace);
                left.extend(channels.into_iter().filter(|name| name.contains(&ours)));
            }
        }
        Ok(left)
    }
}
