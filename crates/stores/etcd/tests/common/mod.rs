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
use clinch_core::{Clinch, Clock, Guard, HandOver, Identity, Name, OwnerId, Result};
use clinch_testkit::proxy::{Proxy, http2};
use clinch_testkit::servers::Etcd;
use clinch_testkit::wait::eventually;

/// A lease that no test outlives: what becomes free with it became so because somebody acted.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How long claims go on while an election is under way on a busy machine.
const PATIENT: Duration = Duration::from_secs(120);

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
        let store = clinch_etcd::open(&url.parse()?, context).await?;
        Ok(Self { store, identity })
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

/// A whole client that is patient, without hand-over inside the process.
pub(crate) async fn clinch(url: &str) -> Clinch {
    let context = Clinch::context("clinch").unwrap();
    let url = url.parse().unwrap();
    let store = clinch_etcd::open(&url, context.clone()).await.unwrap();
    let builder = Clinch::builder(store, context);
    builder.patience(PATIENT).hand_over(HandOver::OFF).build()
}

/// A proxy that counts replies.
pub(crate) async fn proxy(server: &Etcd) -> Proxy {
    let address = ([127, 0, 0, 1], server.port()).into();
    Proxy::with_splitter(address, http2()).await.unwrap()
}

/// The URL through the proxy; replies are waited for half a second.
pub(crate) fn through(proxy: &Proxy) -> String {
    format!("etcd://{}/?timeout=500ms", proxy.addr())
}

/// The name has so many holders and waiters.
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

/// The number of a guard.
pub(crate) fn number(guard: &Guard) -> u64 {
    guard.token().seq()
}

/// Waits until this much of the boot clock has passed: a lease must run out, and nothing else tells.
pub(crate) async fn pass(span: Duration) {
    Clock::boot().sleep(span).await;
}

/// It stays held for this long.
pub(crate) async fn is_kept(guard: &Guard, span: Duration) {
    let lost = tokio::select! {
        reason = guard.lost() => Some(reason),
        () = pass(span) => None,
    };
    assert_eq!(lost, None);
    assert!(guard.is_valid());
}
