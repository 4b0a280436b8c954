//! Removes claims that are not repeated or renewed any more.
//!
//! The servers end the claims of a client that is dead. While the client lives, the driver's pings keep
//! its sessions alive, so the client itself removes its expired claims.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::BootTime;
use clinch_kit::lock;

use crate::client::Client;
use crate::release;

/// The longest interval: idle sessions are ended as well.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// Schedules a cleanup for the deadline of a new claim.
pub(crate) fn schedule(client: &Client, deadline: BootTime) {
    let mut next = lock(&client.next_cleanup);
    if deadline < *next {
        *next = deadline;
        client.earlier_cleanup.notify_one();
    }
}

/// Runs until the store is closed or dropped.
pub(crate) async fn run(client: Arc<Client>) {
    let closed = &client.sessions.closed;
    while !closed.is_closed() {
        let next = clean_up(&client).await;
        tokio::select! {
            () = client.earlier_cleanup.notified() => {}
            () = client.clock.sleep_until(next) => {}
            () = closed.wait_closed() => {}
        }
    }
}

/// Removes expired claims, and returns the time of the next cleanup.
async fn clean_up(client: &Arc<Client>) -> BootTime {
    let now = client.clock.now();
    let mut earliest = now + LONGEST;
    *lock(&client.next_cleanup) = earliest;
    for own in client.ledger.live() {
        let until = own.state().kept_until(&own.claim);
        if until > now {
            earliest = earliest.min(until);
        } else if !release::expire(client, &own).await {
            earliest = earliest.min(client.clock.now() + PAUSE);
        }
    }
    client.sessions.end_idle();
    // A new claim may have scheduled an earlier one.
    let mut next = lock(&client.next_cleanup);
    *next = earliest.min(*next);
    *next
}
