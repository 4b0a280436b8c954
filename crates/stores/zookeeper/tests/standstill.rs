//! The keeper, clinch's background thread, is blocked. Alone in its program, because all clients of a
//! process share that thread.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::RenewReply;
use clinch_core::{LostReason, keeper};
use common::{Client, renewal, room, shared};

/// Until the lease has expired and the session has not. Cleanup was blocked as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_lease_is_over_is_not_renewed() {
    let lease = Duration::from_secs(8);
    let client = Client::at(&room(&shared().url(), "over")).await;
    let claim = client.mutex("a", lease);
    let grant = client.granted(&claim).await;
    let (wake, asleep) = std::sync::mpsc::channel::<()>();
    keeper::spawn(async move {
        let _ = asleep.recv_timeout(lease * 2);
    })
    .unwrap();
    // The session is longer by a quarter and a tick.
    tokio::time::sleep(lease).await;
    let renewals = [renewal(&claim, &grant)];
    let (renewed, ()) = tokio::join!(client.store.renew(&renewals), async { drop(wake) });
    let lost = RenewReply::Lost(LostReason::Expired);
    assert_eq!(renewed.unwrap(), [lost]);
}
