//! Read, change, write: on a resource that checks tokens, and on one that does not.

use super::super::client::Client;
use super::super::resource::{Resource, Use};

/// The most milliseconds from the last look to the write, most of the time and now and then.
const GAP_MS: (u64, u64) = (30, 300);

pub(super) async fn turn(client: &Client, fenced: bool) {
    let rest = if fenced { "fenced" } else { "unfenced" };
    let name = client.name(rest);
    let Ok(mut resource) = Resource::connect(&client.shared.config.resource) else {
        return client.pause(100).await;
    };
    while !client.shared.stopped() {
        client.refresh().await;
        let lock = client.lock(&name);
        let ask = client.ask(&name);
        let held = client
            .acquire(&ask, async { lock.acquire().await.map(Some) })
            .await;
        let Some(held) = held else {
            client.pause(50).await;
            continue;
        };
        let mut using = Use {
            resource: rest.to_owned(),
            fenced,
            write: false,
            op: held.op,
            token: held.guard.token().get(),
            value: 0,
        };
        if let Ok((true, value)) = resource.access(&using) {
            client.pause(3).await;
            using.write = true;
            using.value = value;
            // The gap between this look and the write is the one that only tokens close. It is
            // long enough for faults to meet it.
            if held.look() {
                let long = client.random(|rng| rng.one_in(4));
                client.pause(if long { GAP_MS.1 } else { GAP_MS.0 }).await;
                if resource.access(&using).is_err() {
                    held.release().await;
                    return;
                }
            }
        }
        held.release().await;
        client.pause(20).await;
    }
}
