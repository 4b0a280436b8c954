//! Messages are lost: it costs time, never a turn.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_core::store::Wake;
use clinch_testkit::proxy::{Direction, Flow};
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, number, proxy, through};

/// No claim is repeated here, so what comes is due to the messages alone.
#[tokio::test]
async fn a_killed_subscription_is_renewed_and_waiters_are_hinted() {
    let server = Redis::start().unwrap();
    let (one, two) = (Client::at(&server).await, Client::at(&server).await);
    let (held, waiting) = (one.mutex("a", LONG), two.mutex("a", LONG));
    let grant = one.granted(&held).await;
    two.queued(&waiting).await;
    let mut wakes = two.store.wakes(&waiting);
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        assert_eq!(soon("a hint", wakes.next()).await, Some(Wake::Hint));
    }
    one.store.release(&hold(&held, &grant)).await.unwrap();
    let wake = soon("the grant", wakes.next()).await;
    assert!(matches!(wake, Some(Wake::Granted(_))), "{wake:?}");
}

#[tokio::test]
async fn a_waiter_whose_connection_is_reset_enters() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let (one, two) = (clinch(&server.url()).await, clinch(&through(&proxy)).await);
    let held = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    let before = proxy.links().len();
    proxy.reset();
    eventually("it has connected again", async || {
        proxy.links().len() > before
    })
    .await;
    let token = number(&held);
    held.release().await.unwrap();
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > token);
}

/// The message is sent while nothing reaches the waiter, and is lost.
#[tokio::test]
async fn a_lost_message_costs_time_only() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let (one, two) = (clinch(&server.url()).await, clinch(&through(&proxy)).await);
    let held = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    proxy
        .links()
        .pop()
        .unwrap()
        .flow(Direction::Down, Flow::Blackhole);
    held.release().await.unwrap();
    let view = one.inspect("a").await.unwrap().unwrap();
    assert_eq!(
        (view.holders.len(), view.waiters.len()),
        (1, 0),
        "granted at once"
    );
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid());
    assert!(one.check(&next.sequencer()).await.unwrap().is_current());
}

/// The server does not answer for a while, then sends all messages at once.
#[tokio::test]
async fn a_paused_server_wakes_when_it_goes_on() {
    let server = Redis::start().unwrap();
    let (one, two) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let held = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    server.cli(&["CLIENT", "PAUSE", "700", "ALL"]).unwrap();
    held.release().await.unwrap();
    assert!(
        soon("the waiter", waiting)
            .await
            .unwrap()
            .unwrap()
            .is_valid()
    );
}

/// A client that waits for nothing does not connect again by itself, and one that waits does not
/// for ever.
#[tokio::test]
async fn only_who_waits_connects_again() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let client = Client::open(&through(&proxy)).await.unwrap();
    proxy.down();
    eventually("it is cut off", async || proxy.open() == 0).await;
    assert_eq!(proxy.refused(), 0);
    // It waits: it tries until it does not.
    proxy.heal();
    let claim = client.mutex("a", LONG);
    client.granted(&claim).await;
    let waiting = client.mutex("a", LONG);
    client.queued(&waiting).await;
    let wakes = client.store.wakes(&waiting);
    proxy.down();
    eventually("it tries", async || proxy.refused() > 2).await;
    drop(wakes);
    // The pause between two tries is at most a second.
    eventually("it tries no more", async || {
        let before = proxy.refused();
        common::pass(std::time::Duration::from_millis(2500)).await;
        proxy.refused() == before
    })
    .await;
}
