//! The suite that every store runs, on ZooKeeper.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Clinch, Result};
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::{Ensemble, ZooKeeper};
use clinch_zookeeper::ZooKeeperStore;

/// One server for all cases: it takes long to start.
static SERVER: LazyLock<Result<ZooKeeper>> = LazyLock::new(ZooKeeper::start);
static ENSEMBLE: LazyLock<Result<Ensemble>> = LazyLock::new(Ensemble::start);

#[derive(Clone, Copy)]
enum Servers {
    One,
    Three,
}

struct Locks(Servers);

struct Room {
    url: String,
}

#[async_trait]
impl Subject for Locks {
    fn name(&self) -> String {
        match self.0 {
            Servers::One => "zookeeper".into(),
            Servers::Three => "ensemble".into(),
        }
    }

    fn info(&self) -> StoreInfo {
        ZooKeeperStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        static ROOMS: AtomicU64 = AtomicU64::new(0);
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let url = match self.0 {
            Servers::One => SERVER.as_ref().map(ZooKeeper::url),
            Servers::Three => ENSEMBLE.as_ref().map(Ensemble::url),
        };
        let url = url.map_err(Clone::clone)?;
        Ok(Box::new(Room {
            url: format!("{url}/room-{number}?tick=200ms"),
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_zookeeper::open(&url.parse()?, context).await
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(match self.0 {
            Servers::One => 1_000,
            Servers::Three => 2_000,
        })
    }

    /// What an ensemble could do differently: order, sessions, expiry.
    fn wants(&self, case: &Case) -> bool {
        let groups = [
            "exclusion",
            "fifo",
            "requests",
            "shared",
            "semaphore",
            "tokens",
            "lost",
        ];
        match self.0 {
            Servers::One => true,
            Servers::Three => groups.contains(&case.group),
        }
    }
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

/// All nodes below the folder of a case that are not empty folders; deletes them unless `only_list`.
async fn remove_all(url: &str, only_list: bool) -> Result<Vec<String>> {
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
            if !only_list {
                // It may have gone by itself.
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
    conformance::main(vec![
        Box::new(Locks(Servers::One)),
        Box::new(Locks(Servers::Three)),
    ])
}
