//! Clients are paused past the end of their sessions, holding and waiting.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::process::ExitCode;
use std::time::Duration;

use clinch_core::Clock;
use clinch_testkit::holder::{Claiming, Holder};
use clinch_testkit::pauses::{self, trial};
use clinch_testkit::servers::ZooKeeper;
use clinch_testkit::wait::{eventually, soon};
use clinch_zookeeper::ZooKeeperStore;
use common::{LONG, Ours, clinch, number, room};

const LEASE: Duration = Duration::from_secs(2);
/// The session of that lease, rounded up to the ticks of the servers.
const SESSION: Duration = Duration::from_millis(2_900);

fn main() -> ExitCode {
    let trials = vec![
        trial(
            "a_holder_paused_past_its_session_reports_the_loss",
            paused_holder,
        ),
        trial(
            "a_waiter_paused_past_its_session_does_not_enter",
            paused_waiter,
        ),
    ];
    pauses::run::<Ours>(ZooKeeperStore::describe(), trials)
}

async fn paused_holder() {
    let server = ZooKeeper::start().unwrap();
    let url = room(&server.url(), "pauses");
    let mut holder = Holder::spawn("zookeeper", &url, "clinch").await;
    let old = holder.acquire(&Claiming::lock("a", LEASE)).await.unwrap();
    holder.watch_for_pause("a", LEASE).await;
    holder.stop().await;
    let other = clinch(&url).await;
    let next = other.lock("a").lease(LONG);
    let next = soon("the end of its session", next.acquire())
        .await
        .unwrap();
    assert!(next.token().get() > old);
    holder.cont();
    assert_eq!(holder.reply().await["valid"], false, "both are valid");
    assert_ne!(holder.release("a").await, "released");
    // Its late requests change nothing.
    let view = other.inspect("a").await.unwrap().unwrap();
    assert_eq!(view.holders[0].token.unwrap().seq(), number(&next));
    // And it goes on with a new session.
    next.release().await.unwrap();
    let again = holder.acquire(&Claiming::lock("a", LEASE)).await.unwrap();
    assert!(again > old);
}

/// Its turn and the end of its session come while it is paused. When it resumes, the event and the
/// connection are outdated, and another client holds the lock.
async fn paused_waiter() {
    let server = ZooKeeper::start().unwrap();
    let url = room(&server.url(), "pauses");
    let (one, two) = (clinch(&url).await, clinch(&url).await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let mut waiter = Holder::spawn("zookeeper", &url, "clinch").await;
    waiter.start_acquire(&Claiming::lock("a", LEASE));
    let waiting = async || one.inspect("a").await.unwrap().unwrap().waiters.len();
    eventually("it waits", async || waiting().await == 1).await;
    waiter.stop().await;
    guard.release().await.unwrap();
    let next = two.lock("a").lease(LONG);
    let next = soon("the end of its session", next.acquire())
        .await
        .unwrap();
    waiter.cont();
    // It must not be granted; it queues again.
    let end = Clock::boot().now() + SESSION;
    eventually("it waits again", async || {
        let view = two.inspect("a").await.unwrap().unwrap();
        assert_eq!(view.holders[0].token.unwrap().seq(), number(&next));
        view.waiters.len() == 1 && Clock::boot().now() > end
    })
    .await;
    let first = next.token().get();
    next.release().await.unwrap();
    assert!(waiter.acquired().await.unwrap() > first);
}
