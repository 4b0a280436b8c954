//! Those who are slow are not shut out by those who are quick.
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
use clinch_testkit::proxy::{Direction, Flow};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{LONG, all_free, clinch, number, proxy};
use tokio::task::JoinHandle;

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

/// Somebody has his turn and does nothing with it: his connection is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_not_used_is_taken_away() {
    let server = MariaDb::start().unwrap();
    // By the hash of `clinch/a`.
    let turn = "'clinch.turn.9e0e2ed6e492f9f6'";
    let stopped = server.stranger(&format!("DO GET_LOCK({turn},0)")).unwrap();
    let taken = || server.sql(&format!("SELECT IS_USED_LOCK({turn})")).unwrap() != "NULL";
    assert!(taken());
    let end = Arc::new(AtomicBool::new(false));
    let tasks = rush(&server, &end).await;
    eventually("the turn is over", async || !taken()).await;
    end.store(true, Ordering::SeqCst);
    for task in tasks {
        soon("a quick one", task).await.unwrap();
    }
    all_free(&server).await;
    drop(stopped);
}
