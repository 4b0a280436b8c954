//! What the tests of faults share.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Grant, Hold, OpenContext, Renewal, Store};
use clinch_core::{Clinch, Clock, Guard, HandOver, Identity, Name, OwnerId, Result};
use clinch_testkit::proxy::{Proxy, Splitter, jute};
use clinch_testkit::servers::ZooKeeper;
use clinch_testkit::wait::eventually;

/// A lease that no test outlives: what becomes free with it became so because somebody acted.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server that takes long to start is shared by the tests of a file that leave it alone.
pub(crate) fn shared() -> &'static ZooKeeper {
    static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start().unwrap());
    &SERVER
}

/// A folder of one's own on a server.
pub(crate) fn room(url: &str, name: &str) -> String {
    format!("{url}/{name}?tick=200ms")
}

/// A store with the identity that uses it, without the engine above: nothing is repeated here.
pub(crate) struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identity: Arc<Identity>,
}

impl Client {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let identity = Arc::new(Identity::new());
        let context = OpenContext {
            namespace: "clinch".into(),
            identity: identity.clone(),
            clock: Clock::boot(),
        };
        let store = clinch_zookeeper::open(&url.parse()?, context).await?;
        Ok(Self { store, identity })
    }

    pub(crate) async fn at(url: &str) -> Self {
        Self::open(url).await.unwrap()
    }

    pub(crate) fn mutex(&self, name: &str, lease: Duration) -> Claim {
        Claim {
            name: Name::new(name).unwrap(),
            request: self.identity.request(),
            owner: OwnerId::new(self.identity.info().id.to_string()),
            client: self.identity.info().clone(),
            units: 1,
            limit: 1,
            lease,
            lock_delay: Duration::ZERO,
            label: None,
            value: None,
            queue: true,
        }
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Grant {
        match self.store.claim(claim).await.unwrap() {
            ClaimReply::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) async fn queued(&self, claim: &Claim) {
        let reply = self.store.claim(claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    }

    /// Takes a lock and gives it back, so that its folder is there and its session open.
    pub(crate) async fn warm_up(&self, name: &str, lease: Duration) {
        let claim = self.mutex(name, lease);
        let grant = self.granted(&claim).await;
        self.store.release(&hold(&claim, &grant)).await.unwrap();
    }
}

pub(crate) fn hold(claim: &Claim, grant: &Grant) -> Hold {
    Hold {
        name: claim.name.clone(),
        request: claim.request,
        seq: grant.seq,
    }
}

pub(crate) fn renewal(claim: &Claim, grant: &Grant) -> Renewal {
    Renewal {
        hold: hold(claim, grant),
        lease: claim.lease,
        value: None,
    }
}

/// A whole client, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    let context = Clinch::context("clinch").unwrap();
    let url = url.parse().unwrap();
    let store = clinch_zookeeper::open(&url, context.clone()).await;
    let builder = Clinch::builder(store.unwrap(), context);
    builder.hand_over(HandOver::OFF).build()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &ZooKeeper) -> Proxy {
    proxy_with(server, jute()).await
}

pub(crate) async fn proxy_with(server: &ZooKeeper, splitter: Splitter) -> Proxy {
    let address = ([127, 0, 0, 1], server.port()).into();
    Proxy::with_splitter(address, splitter).await.unwrap()
}

/// The URL of a folder through the proxy; replies are waited for a second.
pub(crate) fn through(proxy: &Proxy, name: &str) -> String {
    format!("zookeeper://{}/{name}?tick=200ms&timeout=1s", proxy.addr())
}

/// Waits until so many hold and wait, as another client sees it.
pub(crate) async fn until(by: &Client, name: &str, holders: usize, waiters: usize) {
    let name = Name::new(name).unwrap();
    eventually("the line", async || {
        let view = by.store.inspect(&name).await.unwrap();
        let seen = view.map_or((0, 0), |v| (v.holders.len(), v.waiters.len()));
        seen == (holders, waiters)
    })
    .await;
}

/// The number of a guard.
pub(crate) fn number(guard: &Guard) -> u64 {
    guard.token().seq()
}
