//! Candidates, and observers who follow them.

use std::time::Duration;

use clinch::Leadership;

use super::super::client::{Ask, Client};
use super::super::held::released;
use crate::history::{Event, Kind, Observe, now};

/// The first task of each process is a candidate, the second one an observer.
pub(super) async fn turn(client: &Client) {
    match client.number {
        0 => campaign(client).await,
        _ => observe(client).await,
    }
}

async fn campaign(client: &Client) {
    let name = client.name("election");
    let election = client
        .clinch()
        .election(&name)
        .lease(client.shared.config.lease());
    let ask = Ask {
        kind: Kind::Within,
        ..client.ask(&name)
    };
    let value = format!("process {}", client.shared.config.process);
    let (op, invoke) = (client.shared.op(), now());
    let future = election.campaign_within(value.clone(), Duration::from_secs(5));
    let outcome = client.patiently(op, &ask, invoke, future).await;
    let leader = match outcome {
        Ok(leader) => leader,
        Err(error) => {
            client.record(op, &ask, invoke, Err(error));
            return client.pause(50).await;
        }
    };
    let Some(leader) = leader else {
        client.record(op, &ask, invoke, Ok(None));
        return;
    };
    client.record_guard(op, &ask, invoke, &leader);
    client.pause(30).await;
    // A term that is lost says so here; the record of the release will tell.
    let _ = leader.proclaim(format!("{value}, still")).await;
    client.pause(30).await;
    let invoke = now();
    let valid = leader.is_valid();
    let reply = leader.resign().await;
    released(&client.shared, op, invoke, valid, reply.map(Some));
    client.pause(20).await;
}

async fn observe(client: &Client) {
    let name = client.name("election");
    let observer = client.shared.op();
    let Ok(mut terms) = client.clinch().election(&name).observe().await else {
        return client.pause(200).await;
    };
    while !client.shared.stopped() {
        let news = tokio::select! {
            news = terms.next() => news,
            () = client.shared.clock.sleep(Duration::from_millis(100)) => continue,
        };
        match news {
            Some(Leadership::Led(leader)) => {
                client.shared.recorder.write(&Event::Observe(Observe {
                    process: client.shared.config.process,
                    op: observer,
                    lock: name.clone(),
                    at: now(),
                    token: leader.token.get(),
                }))
            }
            Some(Leadership::Vacant) => {}
            None => return client.pause(100).await,
        }
    }
}
