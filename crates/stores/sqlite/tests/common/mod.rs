//! What the tests share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Grant, Hold, OpenContext, Queued, Store};
use clinch_core::{Clock, Identity, Name, OwnerId, Result};
use clinch_sqlite::SqliteStore;

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = Clock::boot().now().as_nanos();
        let name = format!("clinch-test-{}-{count}-{nanos}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.0.join("locks.db")
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(&self.db(), Clock::boot()).unwrap()
    }

    pub(crate) fn clocked(&self, clock: &Clock) -> Client {
        Client::open(&self.db(), clock.clone()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A store with the identity that uses it.
pub(crate) struct Client {
    pub(crate) store: SqliteStore,
    pub(crate) identity: Arc<Identity>,
}

impl Client {
    pub(crate) fn open(path: &Path, clock: Clock) -> Result<Self> {
        Self::open_url(&format!("sqlite:{}", path.display()), clock)
    }

    pub(crate) fn open_url(url: &str, clock: Clock) -> Result<Self> {
        let identity = Arc::new(Identity::new());
        let context = OpenContext {
            namespace: "clinch".into(),
            identity: identity.clone(),
            clock,
        };
        let store = SqliteStore::open(&url.parse()?, context)?;
        Ok(Self { store, identity })
    }

    pub(crate) fn mutex(&self, name: &str) -> Claim {
        claim(&self.identity, name)
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Grant {
        match self.store.claim(claim).await.unwrap() {
            ClaimReply::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) async fn queued(&self, claim: &Claim) -> Queued {
        match self.store.claim(claim).await.unwrap() {
            ClaimReply::Queued(queued) => queued,
            other => panic!("not queued: {other:?}"),
        }
    }
}

pub(crate) fn claim(identity: &Identity, name: &str) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        request: identity.request(),
        owner: OwnerId::new(identity.info().id.to_string()),
        client: identity.info().clone(),
        units: 1,
        limit: 1,
        lease: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        label: None,
        value: None,
        queue: true,
    }
}

pub(crate) fn hold(claim: &Claim, grant: &Grant) -> Hold {
    Hold {
        name: claim.name.clone(),
        request: claim.request,
        seq: grant.seq,
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
