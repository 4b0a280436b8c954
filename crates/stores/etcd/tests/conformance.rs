//! The conformance suite on etcd: a server that the cases share, with one namespace per case; a dedicated
//! server for cases that restart it; and a cluster of three.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_etcd::EtcdStore;
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::{Etcd, EtcdCluster};

fn main() -> std::process::ExitCode {
    conformance::main(vec![
        Box::new(Shared::<Etcd>::new("etcd", Etcd::start)),
        Box::new(Dedicated),
        Box::new(Shared::<EtcdCluster>::new("etcd3", EtcdCluster::start)),
    ])
}

/// Servers that `etcdctl` can reach.
trait Servers: Send + Sync + 'static {
    fn url(&self) -> String;
    fn ctl(&self, args: &[&str]) -> Result<String>;
}

impl Servers for Etcd {
    fn url(&self) -> String {
        self.url()
    }

    fn ctl(&self, args: &[&str]) -> Result<String> {
        self.ctl(args)
    }
}

impl Servers for EtcdCluster {
    fn url(&self) -> String {
        self.url()
    }

    fn ctl(&self, args: &[&str]) -> Result<String> {
        self.ctl(args)
    }
}

/// Servers that the cases share.
struct Shared<S> {
    name: &'static str,
    start: fn() -> Result<S>,
    servers: OnceLock<Result<Arc<S>>>,
    places: AtomicU64,
}

impl<S> Shared<S> {
    fn new(name: &'static str, start: fn() -> Result<S>) -> Self {
        Self {
            name,
            start,
            servers: OnceLock::new(),
            places: AtomicU64::new(0),
        }
    }
}

fn restarts(case: &Case) -> bool {
    matches!(case.name, "rise_over_restarts" | "it_outlives_its_client")
}

#[async_trait]
impl<S: Servers> Subject for Shared<S> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn info(&self) -> StoreInfo {
        EtcdStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        let servers = self.servers.get_or_init(|| (self.start)().map(Arc::new));
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Namespace {
            servers: servers.clone()?,
            namespace: format!("case-{number}-"),
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_etcd::open(&url.parse()?, context).await
    }

    /// The minimum of a server with default settings.
    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// On a cluster, only cases that could behave differently there.
    fn wants(&self, case: &Case) -> bool {
        let groups = [
            "exclusion",
            "fifo",
            "requests",
            "lost",
            "promises",
            "events",
        ];
        !restarts(case) && (self.name == "etcd" || groups.contains(&case.group))
    }
}

struct Namespace<S> {
    servers: Arc<S>,
    namespace: String,
}

#[async_trait]
impl<S: Servers> Place for Namespace<S> {
    fn url(&self) -> String {
        self.servers.url()
    }

    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    async fn lose_data(&self) -> Result<bool> {
        lose(&*self.servers, &self.namespace)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        leftovers(&*self.servers, &self.namespace)
    }
}

/// A server for each case: for cases that restart it.
struct Dedicated;

#[async_trait]
impl Subject for Dedicated {
    fn name(&self) -> String {
        "etcd_of_its_own".into()
    }

    fn info(&self) -> StoreInfo {
        EtcdStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(Server(Etcd::start()?)))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_etcd::open(&url.parse()?, context).await
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn wants(&self, case: &Case) -> bool {
        restarts(case)
    }
}

struct Server(Etcd);

#[async_trait]
impl Place for Server {
    fn url(&self) -> String {
        self.0.url()
    }

    async fn restart(&self) -> Result<()> {
        self.0.process().terminate()?;
        self.0.start_again()
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        leftovers(&self.0, &self.namespace())
    }
}

/// Deletes all keys of a namespace while its clients use them.
fn lose(servers: &dyn Servers, namespace: &str) -> Result<bool> {
    servers.ctl(&["del", "--prefix", &format!("{namespace}/")])?;
    Ok(true)
}

/// Claims, and keys without a lease. End records, tombstones and delay keys expire with their leases.
fn leftovers(servers: &dyn Servers, namespace: &str) -> Result<Vec<String>> {
    let prefix = format!("{namespace}/");
    let fields = servers.ctl(&["get", "--prefix", "--write-out=fields", &prefix])?;
    let mut left = Vec::new();
    let mut key = String::new();
    for line in fields.lines() {
        if let Some(text) = line.strip_prefix("\"Key\" : ") {
            key = text.to_owned();
        } else if let Some(lease) = line.strip_prefix("\"Lease\" : ") {
            // A claim's key has two slashes: those in the name are escaped.
            let claim = key.matches('/').count() > 1;
            if claim || lease == "0" {
                left.push(format!("{key} on lease {lease}"));
            }
        }
    }
    Ok(left)
}
