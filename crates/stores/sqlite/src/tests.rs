//! Tests that need the inside of a store: clocks that step, reboots, full disks.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{
    Claim, ClaimReply, Ending, Grant, Hold, LostReason, OpenContext, RenewReply, Renewal, Store,
};
use clinch_core::{Clock, ErrorKind, Identity, ManualClock, Name, OwnerId};

use crate::SqliteStore;
use crate::maintenance;
use crate::writer::Route;

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
        let identity = Arc::new(Identity::new());
        let context = OpenContext {
            namespace: "clinch".into(),
            identity: identity.clone(),
            clock: self.clock.clone(),
        };
        let micros = self.micros.clone();
        let url = format!("sqlite:{}", self.db().display()).parse().unwrap();
        let micros = Arc::new(move || micros.load(Ordering::SeqCst));
        (
            SqliteStore::open_with(&url, context, micros).unwrap(),
            identity,
        )
    }

    /// What a machine that was switched off leaves: another boot id, and a clock that starts anew.
    fn reboot(&self) {
        let db = rusqlite::Connection::open(self.db()).unwrap();
        db.execute("UPDATE meta SET value = 'before' WHERE key = 'boot'", [])
            .unwrap();
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
    Claim {
        name: Name::new(name).unwrap(),
        request: identity.request(),
        owner: OwnerId::new("me"),
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

fn hold(claim: &Claim, grant: &Grant) -> Hold {
    Hold {
        name: claim.name.clone(),
        request: claim.request,
        seq: grant.seq,
    }
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
    store.release(&hold(&claim, &grant)).await.unwrap();
    grant.seq
}

async fn reap(store: &SqliteStore) {
    let reaped = store.writer().call(Route::Inline, maintenance::reap);
    reaped.await.unwrap();
}

#[tokio::test]
async fn a_reboot_ends_holds_keeps_delays_and_raises_tokens() {
    let machine = Machine::new();
    let (old, identity) = machine.open();
    let plain = claim(&identity, "plain");
    let first = granted(&old, &plain).await;
    let mut delayed = claim(&identity, "delayed");
    delayed.lock_delay = Duration::from_secs(60);
    granted(&old, &delayed).await;
    let idle = pair(&old, &identity, "idle").await;
    // Power goes: nothing is released, the wall clock falls back, and the tail of the log may be
    // lost, so tokens must start above the ceiling whatever the rows say.
    machine.reboot();
    let ceiling = machine.meta("ceiling");
    machine.micros.store(5, Ordering::SeqCst);
    let (new, identity) = machine.open();

    let grant = granted(&new, &claim(&identity, "plain")).await;
    assert!(grant.seq > ceiling && ceiling > first.seq);
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Expired);
    assert!(pair(&new, &identity, "idle").await > idle.max(ceiling));

    let mut waiting = claim(&identity, "delayed");
    waiting.lease = Duration::from_secs(300);
    let reply = new.claim(&waiting).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    machine.hand.advance(Duration::from_secs(61));
    granted(&new, &waiting).await;
    // What the old one thinks to hold is gone.
    let renewal = Renewal {
        hold: hold(&plain, &first),
        lease: Duration::from_secs(30),
        value: None,
    };
    let replies = old.renew(&[renewal]).await.unwrap();
    assert!(matches!(replies[0], RenewReply::Lost(_)));
}

#[tokio::test]
async fn tokens_rise_when_the_wall_clock_steps_back_and_names_are_forgotten() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mut last = pair(&store, &identity, "n").await;
    for step in [1_000_000, 500_000_000, 999_000_000_000] {
        // The name goes: nobody used it for long.
        machine.hand.advance(Duration::from_secs(3600));
        reap(&store).await;
        assert!(store.list("").await.unwrap().is_empty());
        let rows = machine.meta("floor");
        assert!(rows >= last, "the floor remembers {rows}, {last} was given");
        machine.micros.fetch_sub(step, Ordering::SeqCst);
        let next = pair(&store, &identity, "n").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        // And another process sees the same.
        let (other, identity) = machine.open();
        let next = pair(&other, &identity, "n").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        assert!(machine.meta("ceiling") > last);
    }
}

#[tokio::test]
async fn only_idle_names_are_forgotten() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mut held = claim(&identity, "held");
    held.lease = Duration::from_secs(86_400);
    granted(&store, &held).await;
    pair(&store, &identity, "idle").await;
    let rows = || {
        let db = rusqlite::Connection::open(machine.db()).unwrap();
        db.query_row("SELECT count(*) FROM names", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    reap(&store).await;
    assert_eq!(rows(), 2, "what was used a moment ago is remembered");
    machine.hand.advance(Duration::from_secs(3600));
    reap(&store).await;
    assert_eq!(rows(), 1);
    assert_eq!(store.list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_deleted_file_loses_holds_but_no_token_order() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{end}", machine.db().display())).unwrap();
    }
    machine.micros.store(5, Ordering::SeqCst);
    let renewal = Renewal {
        hold: hold(&mine, &grant),
        lease: Duration::from_secs(30),
        value: None,
    };
    let replies = store.renew(&[renewal]).await.unwrap();
    assert_eq!(replies, [RenewReply::Lost(LostReason::Forgotten)]);
    let next = granted(&store, &claim(&identity, "n")).await;
    assert!(next.seq > grant.seq);
    // The new file is shared with whoever comes.
    let (other, identity) = machine.open();
    let reply = other.claim(&claim(&identity, "n")).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
}

#[tokio::test]
async fn a_full_disk_grants_nothing_and_heals() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    pair(&store, &identity, "warm").await;
    let limit = |pages: u32| {
        store.writer().with_core(|core| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            core.connection().query_row(&sql, [], |_| Ok(())).unwrap();
        });
    };
    limit(1);
    let mut full = None;
    for n in 0..2000 {
        let mut big = claim(&identity, &format!("n{n}"));
        big.value = Some("x".repeat(1000).into());
        match store.claim(&big).await {
            Ok(reply) => assert!(matches!(reply, ClaimReply::Granted(_))),
            Err(error) => {
                full = Some((big, error));
                break;
            }
        }
    }
    let (big, error) = full.expect("the disk never got full");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    assert!(!error.may_have_taken_effect());
    assert!(store.inspect(&big.name).await.unwrap().is_none());
    limit(u32::MAX / 2);
    granted(&store, &big).await;
}

#[tokio::test]
async fn a_damaged_record_is_reported_and_harms_no_other() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    pair(&store, &identity, "bad").await;
    let db = rusqlite::Connection::open(machine.db()).unwrap();
    db.execute("UPDATE names SET state = x'01ff'", []).unwrap();
    drop(db);
    let (bad, good) = (claim(&identity, "bad"), claim(&identity, "good"));
    let (bad, good) = tokio::join!(store.claim(&bad), store.claim(&good));
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(matches!(good.unwrap(), ClaimReply::Granted(_)));
}

#[test]
fn an_old_sqlite_is_refused() {
    assert!(crate::schema::check_version(3_051_002).is_err());
    assert!(crate::schema::check_version(rusqlite::version_number()).is_ok());
}
