//! Shared by the tests of faults.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Admin, OpenContext};
use clinch_core::{Clinch, Result, StoreUrl};
use clinch_testkit::clients::{self, Opens};
pub(crate) use clinch_testkit::clients::{LONG, hold, number, pass, renewal};
use clinch_testkit::proxy::Proxy;
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::eventually;

/// The stores of this crate.
pub(crate) struct Ours;

impl Opens for Ours {
    async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_redis::open(url, context).await
    }
}

pub(crate) type Client = clients::Client<Ours>;

/// A whole client, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    let mut opened = None;
    // On a busy machine a server may take longer than a short timeout to greet.
    eventually("the store opens", async || {
        opened = Client::whole(url).await.ok();
        opened.is_some()
    })
    .await;
    opened.unwrap()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &Redis) -> Proxy {
    Proxy::before(server).await.unwrap()
}

/// The URL through the proxy, with a timeout of 500 ms.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("redis://{}/?timeout=500ms", proxy.addr())
}

/// Waits until no lock is held, waited for or delayed.
pub(crate) async fn all_free(server: &Redis) {
    Client::at(server).await.all_free().await;
}

/// The number of holders at the server.
pub(crate) async fn holders(server: &Redis, name: &str) -> usize {
    Client::at(server).await.holders(name).await
}

/// How long claims are repeated during a failover on a busy machine.
const PATIENT: Duration = Duration::from_secs(120);

/// A client that repeats claims for a long time, without hand-over inside the process.
pub(crate) async fn client(url: &str) -> Result<Clinch> {
    let builder = Client::whole_in(url, "app").await?;
    Ok(builder.patience(PATIENT).build())
}

/// The connections of clients of this crate: only they use RESP3.
pub(crate) fn connections(server: &Redis) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]).unwrap_or_default();
    clients
        .lines()
        .filter(|line| line.contains(" resp=3"))
        .count()
}

/// Calls of scripts that the server has seen so far.
pub(crate) fn calls(server: &Redis) -> u64 {
    let stats = server.info("commandstats").unwrap();
    let of = |name: &str| {
        let stat = stats.get(&format!("cmdstat_{name}"));
        let calls = stat.and_then(|stat| stat.split(['=', ',']).nth(1));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    of("evalsha") + of("eval")
}
