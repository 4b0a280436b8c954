//! Locks on five independent servers.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and runs on its own runtime"
)]

#[path = "../common/mod.rs"]
mod common;

mod all;
mod contention;
mod loss;
mod memory;
mod network;
mod storm;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Admin, LostReason, OpenContext, ReleaseReply};
use clinch_core::{Clinch, ClinchBuilder, Guard, Result};
use clinch_testkit::proxy::Proxy;
use clinch_testkit::servers::{Redis, RedisBuilder};
use clinch_testkit::wait::eventually;
use common::calls;

/// A lease that does not run out within a test.
const LONG: Duration = Duration::from_secs(120);
/// A lease that is meant to run out, or to be renewed often.
const SHORT: Duration = Duration::from_secs(1);

/// Independent servers.
struct Servers(Vec<Redis>);

impl Servers {
    fn start(count: usize) -> Self {
        Self::with(count, Redis::with())
    }

    fn with(count: usize, builder: RedisBuilder) -> Self {
        let start = |_| builder.clone().start().unwrap();
        Self((0..count).map(start).collect())
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Redis::socket_address).collect()
    }

    fn url(&self, parameters: &str) -> String {
        url(&self.addresses(), parameters)
    }

    async fn client(&self) -> Clinch {
        client(&self.url("")).await
    }

    /// Waits until all servers have the name held, also those that were late.
    async fn all_have(&self, name: &str, seq: u64) {
        for server in &self.0 {
            let alone = client(&server.url()).await;
            eventually("the number that has won", async || {
                let view = alone.inspect(name).await.unwrap();
                let token = view.and_then(|view| view.holders[0].token);
                token.map(|token| token.seq()) == Some(seq)
            })
            .await;
        }
    }

    /// Waits until each server on its own has the name free, and nothing but names that end.
    async fn all_are_free(&self, name: &str) {
        for server in &self.0 {
            let alone = client(&server.url()).await;
            eventually("a free lock at each server", async || {
                let tried = alone.lock(name).lease(LONG).try_acquire().await.unwrap();
                match tried {
                    Some(guard) => guard.release().await.unwrap().was_held(),
                    None => false,
                }
            })
            .await;
            alone.close().await.unwrap();
            for (key, content) in server.dump_keys("*").unwrap() {
                let ends = !server.cli(&["PTTL", &key]).unwrap().starts_with('-');
                let stays = key.ends_with(":epoch") || key.ends_with("}highest");
                assert!(key.ends_with('}') && ends || stays, "{key}: {content}");
            }
        }
    }
}

fn url(addresses: &[SocketAddr], parameters: &str) -> String {
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("redis+quorum://{}?{parameters}", hosts.join(","))
}

/// A proxy in front of each server.
async fn proxies(servers: &Servers) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for server in &servers.0 {
        proxies.push(Proxy::before(server).await.unwrap());
    }
    proxies
}

fn through(proxies: &[Proxy], parameters: &str) -> String {
    let addresses: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    url(&addresses, parameters)
}

async fn open(url: &str) -> Result<(Arc<dyn Admin>, OpenContext)> {
    let context = Clinch::context("clinch")?;
    let store = clinch_redis::open(&url.parse()?, context.clone()).await?;
    Ok((store, context))
}

async fn client(url: &str) -> Clinch {
    client_with(url, |builder| builder).await
}

async fn client_with(url: &str, set: impl FnOnce(ClinchBuilder) -> ClinchBuilder) -> Clinch {
    let mut opened = None;
    // On a busy machine servers may take longer than a short timeout to greet.
    eventually("the store opens", async || {
        opened = open(url).await.ok();
        opened.is_some()
    })
    .await;
    let (store, context) = opened.unwrap();
    set(Clinch::builder(store, context)).build()
}

/// Releases a hold while there are faults: it may not have been lost.
async fn released(guard: Guard) {
    let end = guard.release().await;
    let lost = matches!(end, Ok(ReleaseReply::WasLost(_)));
    assert!(!lost, "{end:?}");
}

/// Watches a hold for three short leases; it must not be lost.
async fn lives_for_three_leases(by: &Clinch, guard: &Guard) {
    lives_for(by, guard, SHORT * 3).await;
}

/// Watches a hold; it must not be lost.
async fn lives_for(by: &Clinch, guard: &Guard, span: Duration) {
    let end = by.clock().now() + span;
    eventually("the end of its time", async || {
        assert!(guard.is_valid(), "{:?}", guard.status());
        by.clock().now() > end
    })
    .await;
}
