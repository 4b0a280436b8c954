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

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Grant, Hold, OpenContext, Renewal, Store};
use clinch_core::{Clinch, Clock, Error, Guard, HandOver, Identity, Name, OwnerId, Result};
use clinch_testkit::proxy::{Proxy, mysql};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::eventually;

/// A lease that no test outlives: what becomes free with it became so because somebody acted.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A store with the identity that uses it, without the engine above.
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
        let store = clinch_mysql::open(&url.parse()?, context).await?;
        Ok(Self { store, identity })
    }

    pub(crate) async fn at(server: &MariaDb) -> Self {
        Self::open(&server.url()).await.unwrap()
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

    pub(crate) fn permit(&self, name: &str, limit: u32, lease: Duration) -> Claim {
        Claim {
            limit,
            ..self.mutex(name, lease)
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
    try_clinch(url).await.unwrap()
}

pub(crate) async fn try_clinch(url: &str) -> Result<Clinch> {
    let context = Clinch::context("clinch")?;
    let store = clinch_mysql::open(&url.parse()?, context.clone()).await?;
    let builder = Clinch::builder(store, context);
    Ok(builder.hand_over(HandOver::OFF).build())
}

/// Why this URL is refused, as one line.
pub(crate) async fn refusal(url: &str) -> Error {
    match Client::open(url).await {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "{text}");
            assert!(error.store().is_some(), "no store in {text}");
            error
        }
    }
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &MariaDb) -> Proxy {
    let address = ([127, 0, 0, 1], server.port()).into();
    Proxy::with_splitter(address, mysql()).await.unwrap()
}

/// The URL through the proxy; replies are waited for a second and a half.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!(
        "mysql://clinch:secret@{}/clinch?timeout=1500ms",
        proxy.addr()
    )
}

/// Nobody holds, waits or is delayed.
pub(crate) async fn all_free(server: &MariaDb) {
    let client = Client::at(server).await;
    eventually("everything is free", async || {
        client.store.list("").await.unwrap().is_empty()
    })
    .await;
}

/// The holders that the server knows of.
pub(crate) async fn holders(server: &MariaDb, name: &str) -> usize {
    let client = Client::at(server).await;
    let view = client.store.inspect(&Name::new(name).unwrap()).await;
    view.unwrap().map_or(0, |view| view.holders.len())
}

/// The number of a guard.
pub(crate) fn number(guard: &Guard) -> u64 {
    guard.token().seq()
}

/// Waits until this much of the boot clock has passed: a lease must run out, and nothing else tells.
pub(crate) async fn pass(span: Duration) {
    Clock::boot().sleep(span).await;
}
