//! Readers and writers, and a semaphore of three.

use std::time::Duration;

use super::super::client::{Ask, Client};

const PERMITS: u32 = 3;

/// The first task of each process writes now and then, the others read.
pub(super) async fn read_write(client: &Client) {
    let name = client.name("read-write");
    let lease = client.shared.config.lease();
    let lock = client.clinch().rwlock(&name);
    let writes = client.number == 0;
    let (lock, units) = match writes {
        true => (lock.write().lease(lease), u32::MAX),
        false => (lock.read().lease(lease), 1),
    };
    let ask = Ask {
        units,
        limit: u32::MAX,
        ..client.ask(&name)
    };
    let held = client
        .acquire(&ask, async { lock.acquire().await.map(Some) })
        .await;
    if let Some(held) = held {
        held.keep(Duration::from_millis(client.random(|rng| rng.below(8))))
            .await;
        held.release().await;
    }
    client.pause(if writes { 60 } else { 20 }).await;
}

/// One or two of three permits.
pub(super) async fn semaphore(client: &Client) {
    let name = client.name("semaphore");
    let units = client.random(|rng| if rng.one_in(4) { 2 } else { 1 });
    let lock = client.clinch().semaphore(&name, PERMITS).permits(units);
    let lock = lock.lease(client.shared.config.lease());
    let ask = Ask {
        units,
        limit: PERMITS,
        ..client.ask(&name)
    };
    let held = client
        .acquire(&ask, async { lock.acquire().await.map(Some) })
        .await;
    if let Some(held) = held {
        held.keep(Duration::from_millis(client.random(|rng| rng.below(10))))
            .await;
        held.release().await;
    }
    client.pause(20).await;
}
