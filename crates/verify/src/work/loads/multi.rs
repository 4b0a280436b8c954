//! Three of ten names at once.

use std::collections::BTreeSet;
use std::time::Duration;

use clinch::MultiGuard;

use super::super::client::{Ask, Client, describe};
use super::super::held::released;
use crate::history::{Acquire, Kind, Outcome, now};

const NAMES: u64 = 10;
const WANTED: usize = 3;

pub(super) async fn turn(client: &Client) {
    let mut wanted = BTreeSet::new();
    while wanted.len() < WANTED {
        wanted.insert(client.random(|rng| rng.below(NAMES)));
    }
    let names: Vec<_> = wanted
        .iter()
        .map(|n| client.name(format_args!("multi/{n}")))
        .collect();
    let lock = client
        .clinch()
        .all(&names)
        .lease(client.shared.config.lease());
    let (group, invoke) = (client.shared.op(), now());
    let first = names.first().map_or("", String::as_str);
    let ask = Ask {
        kind: Kind::Within,
        ..client.ask(first)
    };
    let future = lock.acquire_within(Duration::from_secs(5));
    let outcome = client.patiently(group, &ask, invoke, future).await;
    let complete = now();
    let (guard, error) = match outcome {
        Ok(guard) => (guard, None),
        Err(error) => (None, Some(describe(&error))),
    };
    let parts = record(
        client,
        &ask,
        &names,
        group,
        (invoke, complete),
        (&guard, error),
    );
    if let Some(guard) = guard {
        client.pause(5).await;
        let invoke = now();
        let valid: Vec<_> = guard.guards().iter().map(clinch::Guard::is_valid).collect();
        let replies = guard.release().await;
        for (at, (op, valid)) in parts.into_iter().zip(valid).enumerate() {
            let reply = match &replies {
                Ok(replies) => Ok(replies.get(at).cloned()),
                Err(_) => Ok(None),
            };
            released(&client.shared, op, invoke, valid, reply);
        }
    }
    client.pause(30).await;
}

/// One record for each name; the operations, in the order of the guards.
fn record(
    client: &Client,
    ask: &Ask,
    names: &[String],
    group: u64,
    (invoke, complete): (u64, u64),
    (guard, error): (&Option<MultiGuard>, Option<String>),
) -> Vec<u64> {
    let guards = guard.as_ref().map_or(&[][..], MultiGuard::guards);
    let held = |name: &String| guards.iter().find(|guard| guard.name().as_str() == *name);
    let mut ops: Vec<(usize, u64)> = Vec::new();
    let lease = u64::try_from(ask.lease.as_nanos()).unwrap_or(u64::MAX);
    for name in names {
        let (op, guard) = (client.shared.op(), held(name));
        let at = guards
            .iter()
            .position(|guard| guard.name().as_str() == *name);
        ops.extend(at.map(|at| (at, op)));
        let left = guard.map(|guard| u64::try_from(guard.remaining().as_nanos()).unwrap_or(0));
        client.shared.acquired(Acquire {
            op,
            process: client.shared.config.process,
            client: client.client(),
            lock: name.clone(),
            owner: guard
                .map(|g| g.owner().as_str().to_owned())
                .unwrap_or_default(),
            kind: ask.kind,
            units: 1,
            limit: 1,
            group: Some((group, names.len())),
            lease,
            delay: 0,
            invoke,
            complete,
            outcome: match (&guard, &error) {
                (Some(_), _) => Outcome::Ok,
                (None, Some(_)) => Outcome::Info,
                (None, None) => Outcome::Fail,
            },
            token: guard.map(|guard| guard.token().get()),
            deadline: guard
                .filter(|g| g.is_valid())
                .and(left)
                .map(|left| complete + left),
            error: error.clone(),
        });
    }
    ops.sort_unstable();
    ops.into_iter().map(|(_, op)| op).collect()
}
