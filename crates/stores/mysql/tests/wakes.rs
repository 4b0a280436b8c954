//! Wakes that come at the wrong moment do no harm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::Wake;
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::eventually;
use common::{Client, LONG, all_free, hold};

/// The id of the parked connection.
async fn parked(server: &MariaDb) -> String {
    let waits = "SELECT id FROM information_schema.processlist \
                 WHERE user = 'clinch' AND state = 'User lock'";
    let mut id = String::new();
    eventually("the waiter listens", async || {
        id = server.sql(waits).unwrap();
        !id.is_empty()
    })
    .await;
    id
}

/// `KILL QUERY` again and again, whatever the parked connection runs. If a request had several statements, the
/// rest would be left out without an error, and the client would wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wakes_at_any_moment_do_no_harm() {
    let server = Arc::new(MariaDb::start().unwrap());
    let (one, two) = (Client::at(&*server).await, Client::at(&*server).await);
    for round in 0..10 {
        let first = one.mutex("a", LONG);
        let grant = one.granted(&first).await;
        let second = two.mutex("a", LONG);
        let mut wakes = two.store.wakes(&second);
        two.queued(&second).await;
        let kills = format!("KILL QUERY {};", parked(&server).await).repeat(1000);
        let killing = server.clone();
        let killing = tokio::task::spawn_blocking(move || killing.sql(&kills));
        tokio::time::sleep(Duration::from_millis(20)).await;
        one.store.release(&hold(&first, &grant)).await.unwrap();
        // If it waited for a statement that was left out, that would take more than half a minute.
        let woken = async {
            loop {
                match wakes.next().await {
                    Some(Wake::Granted(grant)) => return grant,
                    Some(Wake::Hint) => {}
                    None => panic!("no more wakes"),
                }
            }
        };
        let woken = tokio::time::timeout(Duration::from_secs(20), woken).await;
        let grant = woken.unwrap_or_else(|_| panic!("not woken in round {round}"));
        killing.await.unwrap().unwrap();
        two.store.release(&hold(&second, &grant)).await.unwrap();
    }
    all_free(&server).await;
}
