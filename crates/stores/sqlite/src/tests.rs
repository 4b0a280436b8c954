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

mod beside;
mod boots;
mod sessions;

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

    /// What a machine that was switched off leaves: another boot id, a clock that starts anew, and
    /// nobody who holds the lock of a session file.
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

async fn reap(store: &SqliteStore) {
    let reaped = store.writer.call(Route::Inline, maintenance::reap);
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
    let renewal = Renewal::new(plain.hold(first.seq), Duration::from_secs(30));
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
    let renewal = Renewal::new(mine.hold(grant.seq), Duration::from_secs(30));
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
        store.writer.with_core(|core| {
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

/// Ways in which a record of `bad` can be damaged.
const DAMAGES: [&str; 4] = [
    "UPDATE names SET state = x'01ff' WHERE name = 'bad'",
    "UPDATE names SET state = 'no blob' WHERE name = 'bad'",
    "UPDATE waiters SET entry = x'00' WHERE id = (SELECT id FROM names WHERE name = 'bad')",
    "UPDATE names SET waiting = 'many' WHERE name = 'bad'",
];

#[tokio::test]
async fn a_damaged_record_is_reported_and_harms_no_other() {
    for damage in DAMAGES {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        // On both sides of the damaged one, by name and by row.
        let (before, bad) = (claim(&identity, "a"), claim(&identity, "bad"));
        let first = granted(&store, &before).await;
        let held = granted(&store, &bad).await;
        let queued = store.claim(&claim(&identity, "bad")).await.unwrap();
        assert!(matches!(queued, ClaimReply::Queued(_)));
        let after = claim(&identity, "c");
        granted(&store, &after).await;
        let changed = machine.sql(damage);
        assert_eq!(changed, 1, "{damage}");

        let (again, good) = (claim(&identity, "bad"), claim(&identity, "good"));
        let (again, good) = tokio::join!(store.claim(&again), store.claim(&good));
        let error = again.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        assert!(error.to_string().contains("bad"), "{error}");
        assert!(matches!(good.unwrap(), ClaimReply::Granted(_)));
        for outcome in [
            store.release(&bad.hold(held.seq)).await.map(drop),
            store.inspect(&bad.name).await.map(drop),
            store.check(&bad.name, held.seq).await.map(drop),
            store.evict(&bad.name, None).await.map(drop),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corrupt, "{damage}");
        }

        let listed = store.list("").await.unwrap();
        let names: Vec<&str> = listed.iter().map(|lock| lock.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "good"], "{damage}");
        assert!(store.list("bad").await.unwrap().is_empty());
        let findings = store.doctor().await.unwrap();
        let records = findings.iter().find(|f| f.subject == "records").unwrap();
        assert_eq!(records.severity, Severity::Broken);
        assert!(records.message.contains("1 of 4"), "{records:?}");
        assert!(records.message.contains("bad") && records.advice.is_some());

        let renewal = |claim: &Claim, grant: &Grant| Renewal {
            hold: claim.hold(grant.seq),
            lease: Duration::from_secs(30),
            value: None,
        };
        let renewals = [renewal(&bad, &held), renewal(&before, &first)];
        let replies = store.renew(&renewals).await.unwrap();
        let lost = RenewReply::Lost(LostReason::Forgotten);
        assert_eq!(replies, [lost, RenewReply::Held]);
        store.close().await.unwrap();
        let (other, identity) = machine.open();
        for name in ["a", "c", "good"] {
            granted(&other, &claim(&identity, name)).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_record_stops_neither_reaping_nor_the_first_open_after_a_reboot() {
    for damage in DAMAGES {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        pair(&store, &identity, "idle-1").await;
        granted(&store, &claim(&identity, "bad")).await;
        store.claim(&claim(&identity, "bad")).await.unwrap();
        pair(&store, &identity, "idle-2").await;
        let mut held = claim(&identity, "held");
        held.lease = Duration::from_secs(86_400);
        let grant = granted(&store, &held).await;
        machine.sql(damage);

        machine.hand.advance(Duration::from_secs(3600));
        reap(&store).await;
        let left = "SELECT count(*) FROM names WHERE name LIKE 'idle%'";
        assert_eq!(machine.count(left), 0, "{damage}");
        assert_eq!(machine.count("SELECT count(*) FROM names"), 2);

        machine.reboot();
        let ceiling = machine.meta("ceiling");
        let (new, identity) = machine.open();
        let next = granted(&new, &claim(&identity, "held")).await;
        assert!(next.seq > ceiling && ceiling > grant.seq);
        assert_eq!(next.predecessor.unwrap().ending, Ending::Expired);
        let error = new.claim(&claim(&identity, "bad")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
    }
}

/// Makes the next commits of a store fail: by a hook, after which SQLite has rolled back by itself,
/// or by a constraint, after which the transaction is still open.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Hook,
    Constraint,
}

impl Failure {
    fn set(self, store: &SqliteStore, on: bool) {
        store.writer.with_core(|core| match self {
            Self::Hook => {
                let hook = on.then_some(|| true);
                core.connection_mut().commit_hook(hook).unwrap();
            }
            Self::Constraint if on => {
                let sql = "PRAGMA foreign_keys = ON;
                    CREATE TEMP TABLE parents (id INTEGER PRIMARY KEY);
                    CREATE TEMP TABLE children (
                        parent REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED
                    );
                    CREATE TEMP TRIGGER made AFTER INSERT ON main.names
                        BEGIN INSERT INTO children VALUES (1); END;
                    CREATE TEMP TRIGGER changed AFTER UPDATE ON main.names
                        BEGIN INSERT INTO children VALUES (1); END;";
                core.connection().execute_batch(sql).unwrap();
            }
            Self::Constraint => {
                let sql = "DROP TRIGGER made; DROP TRIGGER changed;
                    DROP TABLE children; DROP TABLE parents;";
                core.connection().execute_batch(sql).unwrap();
            }
        });
    }
}

fn assert_unsure(error: &clinch_core::Error) {
    assert!(error.may_have_taken_effect(), "{error}");
}

#[tokio::test]
async fn a_claim_whose_commit_fails_is_unsure_and_grants_nothing() {
    for failure in [Failure::Hook, Failure::Constraint] {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        let (other, rival) = machine.open();
        let before = pair(&store, &identity, "n").await;
        let (mine, new) = (claim(&identity, "n"), claim(&identity, "new"));
        failure.set(&store, true);
        // Both in one transaction: neither may be told that it was without effect.
        let (known, fresh) = tokio::join!(store.claim(&mine), store.claim(&new));
        assert_unsure(&known.unwrap_err());
        assert_unsure(&fresh.unwrap_err());
        assert!(other.list("").await.unwrap().is_empty(), "{failure:?}");
        assert_unsure(&store.claim(&mine).await.unwrap_err());
        failure.set(&store, false);
        // What this store remembers is what the file says.
        assert!(store.inspect(&mine.name).await.unwrap().is_none());
        let theirs = claim(&rival, "n");
        let taken = granted(&other, &theirs).await;
        assert!(taken.seq > before);
        let reply = store.claim(&mine).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
        other.release(&theirs.hold(taken.seq)).await.unwrap();
        let repeated = granted(&store, &mine).await;
        assert!(repeated.seq > taken.seq);
        assert_eq!(machine.count("SELECT sum(live) FROM names"), 1);
    }
}

#[tokio::test]
async fn a_release_whose_commit_fails_wakes_nobody_and_close_ends_the_hold() {
    for failure in [Failure::Hook, Failure::Constraint] {
        for repeat in [false, true] {
            let machine = Machine::new();
            let (store, identity) = machine.open();
            let (other, rival) = machine.open();
            let mine = claim(&identity, "n");
            let grant = granted(&store, &mine).await;
            let waiting = claim(&rival, "n");
            let mut wakes = other.wakes(&waiting);
            let reply = other.claim(&waiting).await.unwrap();
            assert!(matches!(reply, ClaimReply::Queued(_)));
            failure.set(&store, true);
            let released = store.release(&mine.hold(grant.seq)).await;
            assert_unsure(&released.unwrap_err());
            assert_unsure(&store.withdraw(&mine).await.unwrap_err());
            failure.set(&store, false);
            // The file says that it is held, so nobody may have been told otherwise.
            let early = tokio::time::timeout(Duration::from_millis(30), wakes.next()).await;
            assert!(early.is_err(), "{early:?}");
            let reply = other.claim(&waiting).await.unwrap();
            assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
            if repeat {
                let released = store.release(&mine.hold(grant.seq)).await.unwrap();
                assert_eq!(released, ReleaseReply::Released);
            } else {
                store.close().await.unwrap();
            }
            let next = granted(&other, &waiting).await;
            assert_eq!(next.predecessor.unwrap().ending, Ending::Released);
        }
    }
}

#[tokio::test]
async fn a_close_whose_commit_fails_leaves_the_session_to_be_found_dead() {
    for failure in [Failure::Hook, Failure::Constraint] {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        granted(&store, &claim(&identity, "n")).await;
        failure.set(&store, true);
        assert_unsure(&store.close().await.unwrap_err());
        let (other, rival) = machine.open();
        let next = granted(&other, &claim(&rival, "n")).await;
        assert_eq!(next.predecessor.unwrap().ending, Ending::Expired);
    }
}

#[test]
fn an_old_sqlite_is_refused() {
    assert!(crate::schema::check_version(3_051_002).is_err());
    assert!(crate::schema::check_version(rusqlite::version_number()).is_ok());
}
