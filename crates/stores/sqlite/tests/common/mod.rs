//! What the tests share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Grant, Operations, Queued, Store};
use clinch_core::{Clinch, Clock, Identity, Name, Result};
use clinch_sqlite::SqliteStore;

/// A folder that is removed with the test.
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
    pub(crate) operations: Operations,
}

impl Client {
    pub(crate) fn open(path: &Path, clock: Clock) -> Result<Self> {
        Self::open_url(&format!("sqlite:{}", path.display()), clock)
    }

    pub(crate) fn open_url(url: &str, clock: Clock) -> Result<Self> {
        let identity = Arc::new(Identity::new());
        let context = Clinch::context("clinch")?.with_identity(identity.clone());
        let context = context.with_clock(clock);
        let operations = context.operations.clone();
        let store = SqliteStore::open(&url.parse()?, context)?;
        Ok(Self {
            store,
            identity,
            operations,
        })
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
    let name = Name::new(name).unwrap();
    Claim::new(identity, name, Duration::from_secs(30))
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}
