//! Slow clients are not shut out by quick ones.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch_core::Clinch;
use clinch_core::store::{ClaimReply, ReleaseReply};
use clinch_testkit::proxy::{Direction, Flow};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, hold, number, proxy};
use tokio::task::JoinHandle;

/// The priority lock of the row of `clinch/a`, by its hash.
const PRIORITY: &str = "'clinch.turn.9e0e2ed6e492f9f6'";

/// Two clients pass a lock back and forth as fast as they can, so that its row changes all the time.
async fn rush(server: &MariaDb, end: &Arc<AtomicBool>) -> Vec<JoinHandle<u64>> {
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (client, end): (Clinch, _) = (clinch(&server.url()).await, end.clone());
        tasks.push(tokio::spawn(async move {
            let mut count = 0;
            while !end.load(Ordering::SeqCst) {
                let guard = client.lock("a").lease(LONG).acquire().await.unwrap();
                guard.release().await.unwrap();
                count += 1;
            }
            count
        }));
    }
    tasks
}

/// A client that is far away reads a row and writes it forty milliseconds later, when others have
/// changed it many times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_far_away_gets_in_between_quick_ones() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    let url = format!("mysql://clinch:secret@{}/clinch", proxy.addr());
    let slow = clinch(&url).await;
    proxy.flow(Direction::Down, Flow::Delay(Duration::from_millis(40)));
    let end = Arc::new(AtomicBool::new(false));
    let tasks = rush(&server, &end).await;
    let mut before = 0;
    for _ in 0..3 {
        let lock = slow.lock("a").lease(LONG);
        let guard = soon("the slow one's lock", lock.acquire()).await.unwrap();
        assert!(number(&guard) > before);
        before = number(&guard);
        let released = soon("the slow one's release", guard.release()).await;
        assert!(released.unwrap().was_held());
    }
    end.store(true, Ordering::SeqCst);
    for task in tasks {
        let count = soon("a quick one", task).await.unwrap();
        println!("a quick one had it {count} times");
    }
    all_free(&server).await;
}

/// A session takes priority and does nothing with it: its connection is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn priority_that_is_not_used_is_taken_away() {
    let server = MariaDb::start().unwrap();
    let stopped = server
        .stranger(&format!("DO GET_LOCK({PRIORITY},0)"))
        .unwrap();
    let taken = || {
        server
            .sql(&format!("SELECT IS_USED_LOCK({PRIORITY})"))
            .unwrap()
            != "NULL"
    };
    assert!(taken());
    let end = Arc::new(AtomicBool::new(false));
    let tasks = rush(&server, &end).await;
    eventually("the priority has ended", async || !taken()).await;
    end.store(true, Ordering::SeqCst);
    for task in tasks {
        soon("a quick one", task).await.unwrap();
    }
    all_free(&server).await;
    drop(stopped);
}

/// A session has priority for ever, and replies are waited for a second only. Renewals take the slow path
/// while a claim waits, and the holder keeps its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn priority_that_is_not_ended_costs_no_lock() {
    let server = MariaDb::start().unwrap();
    // Users without the right to end the stranger's connection.
    drop(clinch(&server.url()).await);
    let url = format!("{}?timeout=1s", server.limited_url());
    let (holder, waiter) = (clinch(&url).await, clinch(&url).await);
    let lease = Duration::from_secs(4);
    let guard = holder.lock("a").lease(lease).acquire().await.unwrap();
    let lock = waiter.lock("a").lease(lease);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let queued = async || {
        let views = holder.list("").await.unwrap();
        views.iter().any(|view| view.waiters.len() == 1)
    };
    eventually("the waiter is queued", queued).await;
    let stopped = server
        .stranger(&format!("DO GET_LOCK({PRIORITY},0)"))
        .unwrap();
    // Time has to pass: more than a lease, in which it must be renewed.
    let lost = tokio::time::timeout(lease * 2, guard.lost()).await;
    assert!(lost.is_err() && guard.is_valid(), "{lost:?}");
    assert!(queued().await, "the waiter has lost its place");
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    all_free(&server).await;
    drop(stopped);
}

/// Sessions of another account take priority one after the other: each step is delayed for a bounded time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_keep_taking_priority_delay_no_client_for_long() {
    let server = Arc::new(MariaDb::start().unwrap());
    drop(clinch(&server.url()).await);
    let client = Client::open(&server.limited_url()).await.unwrap();
    let other = Client::open(&server.limited_url()).await.unwrap();
    let theirs = other.mutex("a", LONG);
    let grant = other.granted(&theirs).await;
    let end = Arc::new(AtomicBool::new(false));
    let sessions: Vec<_> = (0..3)
        .map(|_| {
            let (server, end) = (server.clone(), end.clone());
            let take =
                format!("SELECT GET_LOCK({PRIORITY},60), SLEEP(0.7), RELEASE_LOCK({PRIORITY})");
            std::thread::spawn(move || {
                while !end.load(Ordering::SeqCst) {
                    server.sql(&take).unwrap();
                }
            })
        })
        .collect();
    let taken = async || {
        let used = server.sql(&format!("SELECT IS_USED_LOCK({PRIORITY})"));
        used.unwrap() != "NULL"
    };
    eventually("a session has priority", taken).await;
    // Each within the time that a reply is waited for, or it would be an error.
    for _ in 0..5 {
        let mine = client.mutex("a", LONG);
        let reply = client.store.claim(&mine).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
        client.store.withdraw(&mine).await.unwrap();
    }
    let released = other.store.release(&hold(&theirs, &grant)).await.unwrap();
    assert_eq!(released, ReleaseReply::Released);
    end.store(true, Ordering::SeqCst);
    for session in sessions {
        session.join().unwrap();
    }
    all_free(&server).await;
}
