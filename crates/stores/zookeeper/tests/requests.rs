//! Requests of an acquisition, whatever the number of waiters.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_core::store::Wake;
use clinch_testkit::wait::soon;
use common::{Client, LONG, hold, operations, room, shared};

/// All clients wait in one queue and take their turns. Counts what the server receives, pings included.
async fn turns(waiters: usize) -> (f64, f64) {
    let url = room(&shared().url(), &format!("queue-{waiters}"));
    let mut clients = Vec::new();
    for _ in 0..waiters.min(8) {
        let client = Client::at(&url).await;
        clients.push(client);
    }
    let gate = Client::at(&url).await;
    let first = gate.mutex("a", LONG);
    let opening = gate.granted(&first).await;
    for client in &clients {
        // Opens its session and marks the folder as busy: the first claim in a folder reads the folder
        // record as well.
        let claim = client.mutex("a", LONG);
        client.queued(&claim).await;
        client.store.withdraw(&claim).await.unwrap();
    }
    let sent = || clients.iter().map(operations).sum::<u64>();
    let (before, packets) = (sent(), shared().packets().unwrap());
    let mut queue = Vec::new();
    for at in 0..waiters {
        let client = &clients[at % clients.len()];
        let claim = client.mutex("a", LONG);
        client.queued(&claim).await;
        let wakes = client.store.wakes(&claim);
        queue.push((client, claim, wakes));
    }
    gate.store.release(&hold(&first, &opening)).await.unwrap();
    let mut last = opening.seq;
    for (client, claim, mut wakes) in queue {
        let wake = soon("the turn", wakes.next()).await;
        let Some(Wake::Granted(grant)) = wake else {
            panic!("{wake:?}");
        };
        assert!(grant.seq > last, "out of order");
        assert_eq!(grant.predecessor.as_ref().unwrap().seq, last);
        last = grant.seq;
        client.store.release(&hold(&claim, &grant)).await.unwrap();
    }
    let packets = shared().packets().unwrap() - packets;
    let each = |count: u64| count as f64 / waiters as f64;
    (each(sent() - before), each(packets))
}

#[tokio::test]
async fn five_requests_for_an_acquisition_with_2_64_and_500_waiters() {
    for waiters in [2, 64, 500] {
        let (requests, packets) = turns(waiters).await;
        println!(
            "{waiters} waiters: {requests:.2} requests each, {packets:.2} packets at the server"
        );
        assert!(requests <= 5.0, "{waiters} waiters: {requests} requests");
    }
}
