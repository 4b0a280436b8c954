//! Connections: none is left by a store that was closed or dropped.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch};

/// Connections by TCP; those of the kit come through the socket file.
fn open(server: &Redis) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]).unwrap();
    let tcp = clients
        .lines()
        .filter(|line| line.contains(" addr=127.0.0.1:"));
    tcp.filter(|line| !line.contains(":0 ")).count()
}

async fn none_left(server: &Redis) {
    eventually("no connection is left", async || open(server) == 0).await;
    eventually("no subscription is left", async || {
        server.cli(&["PUBSUB", "CHANNELS"]).unwrap().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_closed_store_has_none_and_makes_none() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let held = client.mutex("a", LONG);
    let grant = client.granted(&held).await;
    let waiting = client.mutex("a", LONG);
    client.queued(&waiting).await;
    let mut wakes = client.store.wakes(&waiting);
    let mut events = client.store.events("").await.unwrap();
    assert_eq!(open(&server), 1);
    client.store.close().await.unwrap();
    assert_eq!(soon("the end of the wakes", wakes.next()).await, None);
    assert_eq!(soon("the end of the events", events.next()).await, None);
    none_left(&server).await;
    // A claim that was in flight when it was closed can still be withdrawn.
    client.store.withdraw(&waiting).await.unwrap();
    client
        .store
        .release(&common::hold(&held, &grant))
        .await
        .unwrap();
    none_left(&server).await;
    assert_eq!(Client::at(&server).await.store.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_dropped_store_has_none_even_if_streams_are_kept() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    client.granted(&client.mutex("a", LONG)).await;
    let waiting = client.mutex("a", LONG);
    client.queued(&waiting).await;
    let mut wakes = client.store.wakes(&waiting);
    let mut events = client.store.events("").await.unwrap();
    assert_eq!(open(&server), 1);
    drop(client);
    none_left(&server).await;
    assert_eq!(soon("the end of the wakes", wakes.next()).await, None);
    assert_eq!(soon("the end of the events", events.next()).await, None);
}

#[tokio::test]
async fn a_dropped_client_releases_and_leaves_none() {
    let server = Redis::start().unwrap();
    let client = clinch(&server.url()).await;
    let guard = client.lock("a").lease(LONG).acquire().await.unwrap();
    drop(client);
    drop(guard);
    none_left(&server).await;
    assert_eq!(common::holders(&server, "a").await, 0);
}

/// A store that is dropped while a step is in flight.
#[tokio::test]
async fn a_store_dropped_with_a_stalled_step_has_none() {
    let server = Redis::start().unwrap();
    let client = Client::open(&format!("{}/?timeout=300ms", server.url()))
        .await
        .unwrap();
    server.pause().unwrap();
    let claim = client.mutex("a", LONG);
    let step = clinch_testkit::wait::drop_after(
        client.store.claim(&claim),
        1,
        std::time::Duration::from_secs(1),
    );
    assert!(step.await.is_none());
    drop(client);
    server.resume().unwrap();
    none_left(&server).await;
}

/// One connection carries the requests of any number of tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_all_tasks() {
    let server = Redis::start().unwrap();
    let client = clinch(&server.url()).await;
    let mut tasks = Vec::new();
    for i in 0..100 {
        let lock = client.lock(format!("n{i}"));
        tasks.push(tokio::task::spawn(
            async move { lock.acquire().await.unwrap() },
        ));
    }
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    assert_eq!(open(&server), 1);
    client.close().await.unwrap();
    none_left(&server).await;
}
