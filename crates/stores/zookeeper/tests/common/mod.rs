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

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use clinch_core::store::{Admin, OpenContext, Operations};
use clinch_core::{ClientId, Clinch, Result, StoreUrl};
use clinch_testkit::clients::{self, Opens};
pub(crate) use clinch_testkit::clients::{LONG, hold, number, renewal};
use clinch_testkit::proxy::{Proxy, Splitter};
use clinch_testkit::servers::ZooKeeper;

/// A server that takes long to start is shared by the tests of a file that leave it alone.
pub(crate) fn shared() -> &'static ZooKeeper {
    static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start().unwrap());
    &SERVER
}

/// A folder of one's own on a server.
pub(crate) fn room(url: &str, name: &str) -> String {
    format!("{url}/{name}?tick=200ms")
}

/// The stores of this crate.
pub(crate) struct Ours;

impl Opens for Ours {
    async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let client = context.identity.info().id;
        let counted = context.operations.clone();
        OPERATIONS.lock().unwrap().insert(client, counted);
        clinch_zookeeper::open(url, context).await
    }
}

pub(crate) type Client = clients::Client<Ours>;

/// The count of requests of each client.
static OPERATIONS: LazyLock<Mutex<HashMap<ClientId, Operations>>> = LazyLock::new(Mutex::default);

/// The requests that a client has sent so far.
pub(crate) fn operations(client: &Client) -> u64 {
    let all = OPERATIONS.lock().unwrap();
    all[&client.identity.info().id].count()
}

/// A whole client, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    Client::whole(url).await.unwrap()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &ZooKeeper) -> Proxy {
    Proxy::before(server).await.unwrap()
}

pub(crate) async fn proxy_with(server: &ZooKeeper, splitter: Splitter) -> Proxy {
    let proxy = Proxy::with_splitter(server.socket_address(), splitter);
    proxy.await.unwrap()
}

/// The URL of a folder through the proxy; replies are waited for a second.
pub(crate) fn through(proxy: &Proxy, name: &str) -> String {
    format!("zookeeper://{}/{name}?tick=200ms&timeout=1s", proxy.addr())
}
