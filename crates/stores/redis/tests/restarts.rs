//! The server dies and comes back, with its data and without, and forgets its scripts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply};
use clinch_core::{Clinch, ErrorKind, Guard, LostReason};
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, number, pass, renewal};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(5);

fn durable() -> Redis {
    Redis::with().append_only("always").start().unwrap()
}

/// A client that waits for a lock which another holds.
async fn waiter(server: &Redis, lease: Duration) -> JoinHandle<clinch_core::Result<Guard>> {
    let (observer, client) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let lock = client.lock("a").lease(lease);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        let view = observer.inspect("a").await.unwrap();
        view.is_some_and(|view| view.waiters.len() == 1)
    })
    .await;
    waiting
}

async fn held_for(guard: &Guard, span: Duration) {
    let lost = tokio::select! {
        reason = guard.lost() => Some(reason),
        () = pass(span) => None,
    };
    assert_eq!(lost, None);
    assert!(guard.is_valid());
}

#[tokio::test]
async fn with_its_data_a_hold_lives_on_and_waiters_get_their_turn() {
    let server = durable();
    let clinch: Clinch = clinch(&server.url()).await;
    let guard = clinch.lock("a").lease(LEASE).acquire().await.unwrap();
    let token = number(&guard);
    let waiting = waiter(&server, LEASE).await;
    server.kill().unwrap();
    server.start_again().unwrap();
    held_for(&guard, LEASE * 3 / 2).await;
    assert!(clinch.check(&guard.sequencer()).await.unwrap().is_current());
    assert_eq!(number(&guard), token);
    assert!(!waiting.is_finished());
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > token);
}

#[tokio::test]
async fn with_its_data_queue_and_lock_delay_are_kept() {
    let server = durable();
    let client = Client::at(&server).await;
    let crashed = Claim {
        lock_delay: LONG,
        ..client.mutex("d", LONG)
    };
    client.granted(&crashed).await;
    client.store.evict(&crashed.name, None).await.unwrap();
    let held = client.permit("s", 2, LONG);
    let grant = client.granted(&held).await;
    client.granted(&client.permit("s", 2, LONG)).await;
    let queue: Vec<_> = (0..3).map(|_| client.permit("s", 2, LONG)).collect();
    for claim in &queue {
        client.queued(claim).await;
    }
    server.kill().unwrap();
    server.start_again().unwrap();
    let reply = eventually_answers(&client, &client.mutex("d", LONG)).await;
    assert!(
        matches!(reply, ClaimReply::Queued(_)),
        "the delay is over: {reply:?}"
    );
    client.store.release(&hold(&held, &grant)).await.unwrap();
    client.granted(&queue[0]).await;
    client.queued(&queue[1]).await;
}

/// The first try may find the connection that died with the server.
async fn eventually_answers(client: &Client, claim: &Claim) -> ClaimReply {
    let mut answer = None;
    eventually("an answer", async || {
        answer = client.store.claim(claim).await.ok();
        answer.is_some()
    })
    .await;
    answer.unwrap()
}

#[tokio::test]
async fn without_its_data_holds_are_lost_and_waiters_get_their_turn() {
    let server = Redis::start().unwrap();
    let clinch: Clinch = clinch(&server.url()).await;
    let guard = clinch.lock("a").lease(LEASE).acquire().await.unwrap();
    let waiting = waiter(&server, LEASE).await;
    server.kill().unwrap();
    server.start_empty().unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Forgotten);
    assert!(!guard.is_valid());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > number(&guard));
}

/// Down for longer than a lease: the guard expires without a message, and nothing hangs.
#[tokio::test]
async fn while_the_server_is_down_the_hold_ends_on_time() {
    let server = durable();
    let clinch: Clinch = clinch(&server.url()).await;
    let lease = Duration::from_secs(1);
    let guard = clinch.lock("a").lease(lease).acquire().await.unwrap();
    let waiting = waiter(&server, lease).await;
    server.kill().unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    server.start_again().unwrap();
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > number(&guard));
}

#[tokio::test]
async fn forgotten_scripts_are_brought_again_at_any_step() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let forget = || server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    let (claim, next) = (client.mutex("a", LONG), client.mutex("a", LONG));
    forget();
    let grant = client.granted(&claim).await;
    forget();
    client.queued(&next).await;
    forget();
    let held = client
        .store
        .renew(&[renewal(&claim, &grant)])
        .await
        .unwrap();
    assert_eq!(format!("{held:?}"), "[Held]");
    forget();
    let view = client.store.inspect(&claim.name).await.unwrap().unwrap();
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 1));
    forget();
    client.store.withdraw(&next).await.unwrap();
    forget();
    assert!(
        client
            .store
            .check(&claim.name, grant.seq)
            .await
            .unwrap()
            .is_current()
    );
    forget();
    assert!(
        client
            .store
            .release(&hold(&claim, &grant))
            .await
            .unwrap()
            .was_held()
    );
    forget();
    assert_eq!(client.store.list("").await.unwrap(), []);
}

/// Scripts vanish all the time while many tasks count under one lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_break_nothing_under_load() {
    let server = Redis::start().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let clinch: Clinch = clinch(&server.url()).await;
        for _ in 0..4 {
            let lock = clinch.lock("a").lease(LONG);
            tasks.push(tokio::task::spawn(async move {
                let mut last = 0;
                for _ in 0..25 {
                    let guard = lock.acquire().await.unwrap();
                    assert!(number(&guard) > last);
                    last = number(&guard);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    eventually("all have counted", async || {
        server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        tasks.iter().all(JoinHandle::is_finished)
    })
    .await;
    for task in tasks {
        task.await.unwrap();
    }
}

/// An administrator makes the server a replica: its clients leave it, and come back.
#[tokio::test]
async fn a_server_that_becomes_a_replica_is_given_up() {
    let (server, master) = (Redis::start().unwrap(), Redis::start().unwrap());
    let client = Client::at(&server).await;
    client.granted(&client.mutex("before", LONG)).await;
    let port = master.port().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let first = client
        .store
        .claim(&client.mutex("a", LONG))
        .await
        .unwrap_err();
    assert!(!first.may_have_taken_effect(), "{first}");
    let second = client
        .store
        .claim(&client.mutex("a", LONG))
        .await
        .unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Unsupported, "{second}");
    let named = format!("is a replica of 127.0.0.1:{port}");
    assert!(second.to_string().contains(&named), "{second}");
    server.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    client.granted(&client.mutex("a", LONG)).await;
}
