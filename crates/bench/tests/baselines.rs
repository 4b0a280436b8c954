//! Each engine's baselines run, exclude what they should, and leave nothing behind.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and uses its own runtime"
)]

use std::time::Duration;

use clinch_bench::baseline::{self, Engine};
use clinch_testkit::servers::{Cluster, Etcd, Folder, MariaDb, Redis, Sentinels, ZooKeeper};

const ID: &str = "00000000000000aa";

async fn engine(url: &str) -> Box<dyn Engine> {
    let engine = baseline::open(&url.parse().unwrap(), ID).await;
    engine.unwrap().unwrap()
}

/// Two workers at once, several pairs each.
async fn floor(engine: &dyn Engine) {
    let (mut one, mut two) = (engine.floor().await.unwrap(), engine.floor().await.unwrap());
    for _ in 0..5 {
        let (first, second) = tokio::join!(one.pair(1), two.pair(2));
        first.unwrap();
        second.unwrap();
    }
}

async fn naive_lock(engine: &dyn Engine) {
    let mut lock = engine.naive_lock().await.unwrap().unwrap();
    for key in [1, 2, 1] {
        lock.pair(key).await.unwrap();
    }
}

/// Of two processes, one gets the token when the other passes it.
async fn token(here: &dyn Engine, there: &dyn Engine) {
    let name = "clinch-bench/test/token";
    let mut one = here.token(name).await.unwrap().unwrap();
    let mut two = there.token(name).await.unwrap().unwrap();
    one.pass().await.unwrap();
    one.take().await.unwrap();
    let mut taking = tokio::spawn(async move {
        two.take().await.unwrap();
        two.pass().await.unwrap();
        two
    });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut taking).await;
    assert!(early.is_err(), "it is taken");
    one.pass().await.unwrap();
    let mut two = taking.await.unwrap();
    one.take().await.unwrap();
    one.pass().await.unwrap();
    two.remove().await.unwrap();
    one.remove().await.unwrap();
}

#[tokio::test]
async fn sqlite() {
    let folder = Folder::new("bench-baseline").unwrap();
    let engine = engine(&format!("sqlite:{}/locks.db", folder.path().display())).await;
    floor(engine.as_ref()).await;
    assert!(engine.naive_lock().await.unwrap().is_none());
    assert!(engine.token("a").await.unwrap().is_none());
    engine.close().await.unwrap();
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn redis() {
    let server = Redis::start().unwrap();
    let (here, there) = (engine(&server.url()).await, engine(&server.url()).await);
    floor(here.as_ref()).await;
    assert!(here.naive_lock().await.unwrap().is_none());
    token(here.as_ref(), there.as_ref()).await;
    here.close().await.unwrap();
    assert!(server.dump_keys("*").unwrap().is_empty());
}

#[tokio::test]
async fn redis_sentinel() {
    let servers = Sentinels::start().unwrap();
    floor(engine(&servers.url()).await.as_ref()).await;
}

#[tokio::test]
async fn redis_cluster() {
    let cluster = Cluster::start().unwrap();
    let engine = engine(&cluster.url()).await;
    floor(engine.as_ref()).await;
    token(engine.as_ref(), engine.as_ref()).await;
}

#[tokio::test]
async fn redis_quorum() {
    let url = "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let engine = baseline::open(&url.parse().unwrap(), ID).await.unwrap();
    assert!(engine.is_none(), "no single server has a key");
}

#[tokio::test]
async fn mysql() {
    let server = MariaDb::start().unwrap();
    let (here, there) = (engine(&server.url()).await, engine(&server.url()).await);
    floor(here.as_ref()).await;
    naive_lock(here.as_ref()).await;
    token(here.as_ref(), there.as_ref()).await;
    let tables = || server.sql("SHOW TABLES").unwrap();
    assert!(tables().contains(ID));
    here.close().await.unwrap();
    there.close().await.unwrap();
    assert!(!tables().contains("bench"));
}

#[tokio::test]
async fn etcd() {
    let server = Etcd::start().unwrap();
    let (here, there) = (engine(&server.url()).await, engine(&server.url()).await);
    floor(here.as_ref()).await;
    assert!(here.naive_lock().await.unwrap().is_none());
    token(here.as_ref(), there.as_ref()).await;
    here.close().await.unwrap();
    there.close().await.unwrap();
    let keys = server.ctl(&["get", "--prefix", "--keys-only", "clinch"]);
    assert_eq!(keys.unwrap().trim(), "");
    let leases = server.ctl(&["lease", "list"]).unwrap();
    assert_eq!(leases.trim(), "found 0 leases");
}

#[tokio::test]
async fn zookeeper() {
    let server = ZooKeeper::start().unwrap();
    let (here, there) = (engine(&server.url()).await, engine(&server.url()).await);
    floor(here.as_ref()).await;
    naive_lock(here.as_ref()).await;
    token(here.as_ref(), there.as_ref()).await;
    assert_eq!(server.ephemerals().unwrap(), 0);
}
