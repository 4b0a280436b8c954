//! Mutexes: wanted by all, many of them, in a queue, for long, in a storm.

use std::time::Duration;

use super::super::client::{Ask, Client};
use super::super::held::Held;
use crate::history::Kind;

/// One lock that everybody wants.
pub(super) async fn hot(client: &Client) {
    let name = client.name("hot");
    let lock = client.lock(&name);
    let ask = client.ask(&name);
    let held = client
        .acquire(&ask, async { lock.acquire().await.map(Some) })
        .await;
    finish(client, held, 3).await;
    client.pause(20).await;
}

/// A thousand locks. For a third of the tasks the first are wanted most; for the others all are alike,
/// so that they go on while a fault keeps a lock that many wait for.
pub(super) async fn many(client: &Client) {
    let crowd = client.number.is_multiple_of(3);
    let number = client.random(|rng| {
        let bits = if crowd { rng.between(1, 10) } else { 10 };
        rng.below(1 << bits)
    });
    let name = client.name(format_args!("many/{number}"));
    let lock = client.lock(&name);
    let ask = Ask {
        kind: Kind::Within,
        ..client.ask(&name)
    };
    let held = client
        .acquire(&ask, lock.acquire_within(Duration::from_secs(5)))
        .await;
    finish(client, held, 4).await;
    client.pause(15).await;
}

/// A queue at the store; some give up while they wait.
pub(super) async fn fair(client: &Client) {
    let name = client.name("fair");
    let lock = client.lock(&name).fair();
    let patience = client.random(|rng| rng.one_in(4).then(|| rng.between(1, 60)));
    let held = match patience {
        Some(millis) => {
            let ask = Ask {
                kind: Kind::Within,
                ..client.ask(&name)
            };
            let span = Duration::from_millis(millis);
            client.acquire(&ask, lock.acquire_within(span)).await
        }
        None => {
            let ask = client.ask(&name);
            client
                .acquire(&ask, async { lock.acquire().await.map(Some) })
                .await
        }
    };
    finish(client, held, 5).await;
    client.pause(10).await;
}

/// Holds that last for many leases, with a lock-delay where the store has one.
pub(super) async fn long(client: &Client) {
    let name = client.name(format_args!("long/{}", client.shared.config.process % 3));
    let lease = client.shared.config.lease();
    let delay = match client.clinch().info().capabilities.lock_delay {
        true => Duration::from_millis(200),
        false => Duration::ZERO,
    };
    let lock = client.lock(&name).lock_delay(delay);
    let ask = Ask {
        delay,
        ..client.ask(&name)
    };
    let held = client
        .acquire(&ask, async { lock.acquire().await.map(Some) })
        .await;
    if let Some(held) = held {
        let leases = client.random(|rng| u32::try_from(rng.between(2, 20)).unwrap_or(2));
        held.keep(lease * leases).await;
        held.release().await;
    }
    client.pause(50).await;
}

/// How much longer than others these locks have their lease: what a try leaves behind is there for all of it.
const STORM_LEASES: u32 = 3;

/// Tries, and acquires whose future is dropped after so many polls.
pub(super) async fn storm(client: &Client) {
    let name = client.name(format_args!("storm/{}", client.random(|rng| rng.below(3))));
    let lease = client.shared.config.lease() * STORM_LEASES;
    let lock = client.clinch().lock(&name).lease(lease);
    let lock = match client.clinch().info().capabilities.queue && client.random(|rng| rng.one_in(2))
    {
        true => lock.fair(),
        false => lock,
    };
    let held = if client.random(|rng| rng.one_in(2)) {
        let ask = Ask {
            kind: Kind::Try,
            lease,
            ..client.ask(&name)
        };
        client.acquire(&ask, lock.try_acquire()).await
    } else {
        let ask = Ask {
            kind: Kind::Dropped,
            lease,
            ..client.ask(&name)
        };
        let polls = client.random(|rng| usize::try_from(rng.below(6)).unwrap_or(0));
        let idle = Duration::from_millis(client.random(|rng| rng.between(1, 40)));
        let dropped = async {
            clinch_testkit::wait::drop_after(lock.acquire(), polls, idle)
                .await
                .transpose()
        };
        client.acquire(&ask, dropped).await
    };
    finish(client, held, 3).await;
    client.pause(30).await;
}

/// Keeps it for up to so many milliseconds and gives it up, by a drop now and then.
async fn finish(client: &Client, held: Option<Held>, most_ms: u64) {
    let Some(held) = held else { return };
    client.pause(most_ms).await;
    match client.random(|rng| rng.one_in(10)) {
        true => held.abandon(),
        false => held.release().await,
    }
}
