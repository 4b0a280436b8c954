//! What the tests of faults share.
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

use clinch_core::store::{Admin, OpenContext};
use clinch_core::{Clinch, Result, StoreUrl};
use clinch_testkit::clients::{self, Opens};
pub(crate) use clinch_testkit::clients::{LONG, hold, number, pass, renewal};
use clinch_testkit::proxy::Proxy;
use clinch_testkit::servers::MariaDb;

/// The stores of this crate.
pub(crate) struct Ours;

impl Opens for Ours {
    async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_mysql::open(url, context).await
    }
}

pub(crate) type Client = clients::Client<Ours>;

/// A whole client, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    Client::whole(url).await.unwrap()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &MariaDb) -> Proxy {
    Proxy::before(server).await.unwrap()
}

/// The URL through the proxy; replies are waited for a second and a half.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!(
        "mysql://clinch:secret@{}/clinch?timeout=1500ms",
        proxy.addr()
    )
}

/// No client holds, waits or is delayed.
pub(crate) async fn all_free(server: &MariaDb) {
    Client::at(server).await.all_free().await;
}

/// The holders that the server knows of.
pub(crate) async fn holders(server: &MariaDb, name: &str) -> usize {
    Client::at(server).await.holders(name).await
}
