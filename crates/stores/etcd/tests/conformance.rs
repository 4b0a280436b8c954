//! The conformance suite on etcd: a server that the cases share, with one namespace per case; a dedicated
//! server for cases that restart it; and a cluster of three.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_etcd::EtcdStore;
use clinch_testkit::conformance::{self, Case, Place};
use clinch_testkit::servers::{Etcd, EtcdCluster};
use clinch_testkit::subjects::restarts;

type OnServers = clinch_testkit::subjects::OnServers<common::Ours>;

/// The minimum of a server with default settings.
const LEASE: Duration = Duration::from_secs(2);

fn main() -> std::process::ExitCode {
    let own = OnServers::own("etcd_of_its_own", EtcdStore::describe(), |_| {
        Etcd::start().map(Server)
    });
    conformance::main(vec![
        Box::new(shared("etcd", Etcd::start).cases(|case| !restarts(case))),
        Box::new(own.lease(LEASE).cases(restarts)),
        Box::new(shared("etcd3", EtcdCluster::start).cases(differs_in_cluster)),
    ])
}

/// Servers that the cases share.
fn shared<S: Servers>(name: &'static str, start: fn() -> Result<S>) -> OnServers {
    let place = |servers, number| {
        Ok(Namespace {
            servers,
            namespace: format!("case-{number}-"),
        })
    };
    OnServers::shared(name, EtcdStore::describe(), start, place).lease(LEASE)
}

/// The cases that could behave differently on a cluster.
fn differs_in_cluster(case: &Case) -> bool {
    let groups = [
        "exclusion",
        "fifo",
        "requests",
        "lost",
        "promises",
        "events",
    ];
    !restarts(case) && groups.contains(&case.group)
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
