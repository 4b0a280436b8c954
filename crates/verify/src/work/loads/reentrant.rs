//! An owner that holds a lock enters it again, up to three deep.

use super::super::client::{Ask, Client};
use crate::history::Kind;

pub(super) async fn turn(client: &Client) {
    let name = client.name("reentrant");
    let owner = client.clinch().owner();
    let lock = client.lock(&name).as_owner(&owner);
    let depth = client.random(|rng| rng.between(1, 3));
    let mut stack = Vec::new();
    for level in 0..depth {
        let kind = if level == 0 { Kind::Wait } else { Kind::Again };
        let ask = Ask {
            kind,
            ..client.ask(&name)
        };
        let held = client
            .acquire(&ask, async { lock.acquire().await.map(Some) })
            .await;
        let Some(held) = held else { break };
        stack.push(held);
        // What was lost is not entered again: that would be a new hold.
        if !stack.iter().all(|held| held.look()) {
            break;
        }
        client.pause(2).await;
        if !stack.iter().all(|held| held.guard.is_valid()) {
            break;
        }
    }
    while let Some(held) = stack.pop() {
        held.release().await;
    }
    client.pause(15).await;
}
