//! Helpers that the test programs share.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses a part of it"
)]
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
use clinch_core::{Clinch, Guard, Result, StoreUrl};
use clinch_testkit::clients::{self, Opens};
pub(crate) use clinch_testkit::clients::{LONG, hold, number, pass, renewal};
use clinch_testkit::proxy::Proxy;
use clinch_testkit::servers::Etcd;
use clinch_testkit::wait::eventually;

/// How long claims are retried during an election on a busy machine.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(120);

/// The stores of this crate.
pub(crate) struct Ours;

impl Opens for Ours {
    async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_etcd::open(url, context).await
    }
}

pub(crate) type Client = clients::Client<Ours>;

/// A complete client that retries for long, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    let builder = Client::whole_in(url, "clinch").await.unwrap();
    builder.patience(UNREACHABLE_AFTER).build()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &Etcd) -> Proxy {
    Proxy::before(server).await.unwrap()
}

/// The URL through the proxy, with a timeout of half a second.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("etcd://{}/?timeout=500ms", proxy.addr())
}

/// Waits until the name has this number of holders and waiters.
pub(crate) async fn until(by: &Clinch, name: &str, holders: usize, waiters: usize) {
    eventually(
        &format!("{holders} holders, {waiters} waiters"),
        async || {
            let view = by.inspect(name).await.ok().flatten();
            view.map_or((0, 0), |v| (v.holders.len(), v.waiters.len())) == (holders, waiters)
        },
    )
    .await;
}

/// Asserts that the lock stays held for this long.
pub(crate) async fn is_kept(guard: &Guard, span: Duration) {
    let lost = tokio::select! {
        reason = guard.lost() => Some(reason),
        () = pass(span) => None,
    };
    assert_eq!(lost, None);
    assert!(guard.is_valid());
}
