//! Tests that need the inside of a store: clocks that step, reboots, full disks.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{
    Admin, Claim, ClaimReply, Ending, Grant, LostReason, ReleaseReply, RenewReply, Renewal,
    Severity, Store,
};
use clinch_core::{Clinch, Clock, ErrorKind, Identity, ManualClock, Name};

mod boots;
mod commits;
mod damage;
mod sessions;
mod tokens;
mod without_lock;

use crate::SqliteStore;
use crate::batch::Route;
use crate::cleanup;

/// A folder, and the clocks of the machine that it is on.
struct Machine {
    folder: PathBuf,
    clock: Clock,
    hand: Arc<ManualClock>,
    micros: Arc<AtomicU64>,
}

impl Machine {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("clinch-unit-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let (clock, hand) = Clock::manual();
        Self {
            folder,
            clock,
            hand,
            micros: Arc::new(AtomicU64::new(1_000_000_000_000)),
        }
    }

    fn db(&self) -> PathBuf {
        self.folder.join("locks.db")
    }

    fn open(&self) -> (SqliteStore, Arc<Identity>) {
        self.open_with("")
    }

    fn open_with(&self, parameters: &str) -> (SqliteStore, Arc<Identity>) {
        let identity = Arc::new(Identity::new());
        let context = Clinch::context("clinch").unwrap();
        let context = context.with_identity(identity.clone());
        let context = context.with_clock(self.clock.clone());
        let micros = self.micros.clone();
        let url = format!("sqlite:{}{parameters}", self.db().display());
        let url = url.parse().unwrap();
        let micros = Arc::new(move || micros.load(Ordering::SeqCst));
        (
            SqliteStore::open_with(&url, context, micros).unwrap(),
            identity,
        )
    }

    /// The state after a reboot: another boot id, a clock that starts again, and no locked session
    /// files.
    fn reboot(&self) {
        let later = Clock::boot().now() + Duration::from_secs(3600);
        let db = rusqlite::Connection::open(self.db()).unwrap();
        let sql =
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('boot', 'before'), ('clock', ?1)";
        db.execute(sql, [i64::try_from(later.as_nanos()).unwrap()])
            .unwrap();
        fs::remove_dir_all(self.sessions()).unwrap();
    }

    fn sessions(&self) -> PathBuf {
        self.folder.join("locks.db.sessions")
    }

    /// Changes the file behind the store's back.
    fn sql(&self, sql: &str) -> usize {
        let db = rusqlite::Connection::open(self.db()).unwrap();
        db.execute(sql, []).unwrap()
    }

    fn count(&self, sql: &str) -> i64 {
        let db = rusqlite::Connection::open(self.db()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn meta(&self, key: &str) -> u64 {
        let db = rusqlite::Connection::open(self.db()).unwrap();
        crate::sequence::number(&db, key).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn claim(identity: &Identity, name: &str) -> Claim {
    let name = Name::new(name).unwrap();
    Claim::new(identity, name, Duration::from_secs(30))
}

async fn granted(store: &SqliteStore, claim: &Claim) -> Grant {
    match store.claim(claim).await.unwrap() {
        ClaimReply::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn pair(store: &SqliteStore, identity: &Identity, name: &str) -> u64 {
    let claim = claim(identity, name);
    let grant = granted(store, &claim).await;
    store.release(&claim.hold(grant.seq)).await.unwrap();
    grant.seq
}

async fn clean(store: &SqliteStore) {
    let cleaned = store.batcher.call(Route::Inline, cleanup::clean);
    cleaned.await.unwrap();
}

#[test]
fn an_old_sqlite_is_refused() {
    assert!(crate::schema::check_version(3_051_002).is_err());
    assert!(crate::schema::check_version(rusqlite::version_number()).is_ok());
}
