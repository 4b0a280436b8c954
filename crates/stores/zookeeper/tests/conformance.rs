//! The suite that every store runs, on ZooKeeper.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::{Clinch, Result};
use clinch_testkit::conformance::{self, Case, Place};
use clinch_testkit::servers::{Ensemble, ZooKeeper};
use clinch_zookeeper::ZooKeeperStore;

type OnServers = clinch_testkit::subjects::OnServers<common::Ours>;

/// A folder on servers that all cases share: they take long to start.
struct Room {
    url: String,
}

impl Room {
    fn new(servers: &str, number: u64) -> Self {
        Self {
            url: format!("{servers}/room-{number}?tick=200ms"),
        }
    }
}

fn one() -> OnServers {
    let info = ZooKeeperStore::describe();
    let place = |server: Arc<ZooKeeper>, number| Ok(Room::new(&server.url(), number));
    OnServers::shared("zookeeper", info, ZooKeeper::start, place).lease(Duration::from_secs(1))
}

fn three() -> OnServers {
    let info = ZooKeeperStore::describe();
    let place = |servers: Arc<Ensemble>, number| Ok(Room::new(&servers.url(), number));
    OnServers::shared("ensemble", info, Ensemble::start, place)
        .lease(Duration::from_secs(2))
        .cases(differs_in_ensemble)
}

/// What an ensemble could do differently: order, sessions, expiry.
fn differs_in_ensemble(case: &Case) -> bool {
    let groups = [
        "exclusion",
        "fifo",
        "requests",
        "shared",
        "semaphore",
        "tokens",
        "lost",
    ];
    groups.contains(&case.group)
}

#[async_trait]
impl Place for Room {
    fn url(&self) -> String {
        self.url.clone()
    }

    async fn lose_data(&self) -> Result<bool> {
        self.lose_data_live().await
    }

    async fn lose_data_live(&self) -> Result<bool> {
        remove_all(&self.url, false).await?;
        Ok(true)
    }

    async fn leftovers(&self) -> Result<Vec<String>> {
        remove_all(&self.url, true).await
    }
}

/// Deletes all nodes below the folder of a case; with `only_tell`, returns those that are left over.
async fn remove_all(url: &str, only_tell: bool) -> Result<Vec<String>> {
    let url = url.to_owned();
    let gone = |error: zookeeper_client::Error| {
        clinch_core::Error::new(clinch_core::ErrorKind::Unreachable, error.to_string())
    };
    clinch_core::keeper::run(async move {
        let rest = url.trim_start_matches("zookeeper://");
        let (servers, room) = rest.split_once('/').unwrap();
        let room = format!("/{}", room.split('?').next().unwrap());
        let client = zookeeper_client::Client::connect(servers)
            .await
            .map_err(gone)?;
        let mut seen = Vec::new();
        let mut open = vec![room];
        while let Some(path) = open.pop() {
            if let Ok(children) = client.list_children(&path).await {
                open.extend(children.iter().map(|child| format!("{path}/{child}")));
            }
            seen.push(path);
        }
        let mut left = Vec::new();
        for path in seen.iter().rev() {
            if !only_tell {
                // It may be gone already.
                let _ = client.delete(path, None).await;
            } else if let Some(stat) = client.check_stat(path).await.map_err(gone)?
                && stat.ephemeral_owner != 0
                && stat.ephemeral_owner != i64::MIN
                && !path.contains("/_d_")
            {
                left.push(path.clone());
            }
        }
        Ok(left)
    })
    .await
}

fn main() -> ExitCode {
    // The keeper must be there before the first client is.
    let _ = Clinch::context("clinch");
    conformance::main(vec![Box::new(one()), Box::new(three())])
}
