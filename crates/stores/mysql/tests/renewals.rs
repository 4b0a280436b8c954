//! Renewals: one hold's trouble is its own, and a connection that has gone silent costs no lock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::RenewReply;
use clinch_testkit::proxy::{Direction, Flow};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::eventually;
use common::{Client, LONG, all_free, clinch, hold, proxy, renewal};

/// Replies are waited for five seconds, longer than the lease: all connections that could be used go
/// silent, and a new one keeps the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_go_silent_cost_no_short_lease() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    let url = format!("mysql://clinch:secret@{}/clinch", proxy.addr());
    let client = clinch(&url).await;
    let lease = Duration::from_secs(4);
    eventually("several connections are idle", async || {
        let take = |n| {
            let lock = client.lock(format!("b{n}")).lease(LONG);
            tokio::spawn(async move { lock.acquire().await?.release().await })
        };
        let tasks: Vec<_> = (0..8).map(take).collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        proxy.open() >= 4
    })
    .await;
    let guard = client.lock("a").lease(lease).acquire().await.unwrap();
    for link in proxy.links() {
        link.flow(Direction::Down, Flow::Blackhole);
    }
    // Time has to pass: more than a lease, in which it must be renewed.
    let lost = tokio::time::timeout(lease * 2, guard.lost()).await;
    assert!(lost.is_err() && guard.is_valid(), "{lost:?}");
    assert!(guard.release().await.unwrap().was_held());
    all_free(&server).await;
}

/// Another session keeps the row of one hold locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_cannot_be_renewed_costs_no_other() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    // In one statement, and each in its own.
    for leases in [[LONG, LONG], [LONG, LONG / 2]] {
        let [stuck, free] = [("stuck", leases[0]), ("free", leases[1])]
            .map(|(name, lease)| client.mutex(name, lease));
        let grants = (client.granted(&stuck).await, client.granted(&free).await);
        let row = "ns = 'clinch' AND name = 'stuck'";
        let locked = format!("BEGIN; SELECT seq FROM clinch_names WHERE {row} FOR UPDATE");
        let stranger = server.stranger(&locked).unwrap();
        let renewals = [renewal(&stuck, &grants.0), renewal(&free, &grants.1)];
        let renewed = client.store.renew(&renewals).await.unwrap();
        assert_eq!(renewed, [RenewReply::Unknown, RenewReply::Held]);
        drop(stranger);
        for (claim, grant) in [(&stuck, &grants.0), (&free, &grants.1)] {
            client.store.release(&hold(claim, grant)).await.unwrap();
        }
    }
    all_free(&server).await;
}
