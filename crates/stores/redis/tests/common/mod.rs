//! Clients of the servers under test.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::time::Duration;

use clinch_core::{Clinch, HandOver, Result};
use clinch_testkit::servers::Redis;

/// How long claims go on while a failover is under way on a busy machine.
const PATIENT: Duration = Duration::from_secs(120);

/// A client; every hold of its goes back to the store.
pub(crate) async fn client(url: &str) -> Result<Clinch> {
    let context = Clinch::context("app")?;
    let store = clinch_redis::open(&url.parse()?, context.clone()).await?;
    Ok(Clinch::builder(store, context)
        .patience(PATIENT)
        .hand_over(HandOver::OFF)
        .build())
}

/// The connections of clients of this crate: they speak RESP3, as nobody else here does.
pub(crate) fn connections(server: &Redis) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]).unwrap_or_default();
    clients
        .lines()
        .filter(|line| line.contains(" resp=3"))
        .count()
}
