//! Which files are taken, which are refused, and that a refused one is left as it was.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "../common/mod.rs"]
mod common;
mod users;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use clinch_core::store::{Admin, Ending, Severity, Store};
use clinch_core::{Clock, ErrorKind};
use common::{Client, Folder};

fn refused(path: &Path) -> clinch_core::Error {
    match Client::open(path, Clock::boot()) {
        Ok(_) => panic!("{} was taken", path.display()),
        Err(error) => error,
    }
}

fn assert_untouched(path: &Path) {
    let before = fs::read(path).unwrap();
    let error = refused(path);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("untouched"), "{error}");
    assert!(error.to_string().contains("another path"), "{error}");
    assert_eq!(fs::read(path).unwrap(), before);
    let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(files, 1, "something was made next to it");
}

#[test]
fn garbage_is_refused_and_left_untouched() {
    for content in [&b"hello"[..], &[0; 4096], b"SQLite format 3\0 and no more"] {
        let folder = Folder::new();
        fs::write(folder.db(), content).unwrap();
        assert_untouched(&folder.db());
    }
}

#[test]
fn another_applications_database_is_refused_and_left_untouched() {
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let db = rusqlite::Connection::open(folder.db()).unwrap();
        db.execute_batch(&format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE t (x);"
        ))
        .unwrap();
        drop(db);
        assert_untouched(&folder.db());
    }
}

#[test]
fn a_newer_format_is_refused_and_left_untouched() {
    let folder = Folder::new();
    drop(folder.client());
    let db = rusqlite::Connection::open(folder.db()).unwrap();
    db.execute_batch("PRAGMA user_version = 99; PRAGMA journal_mode = DELETE;")
        .unwrap();
    drop(db);
    fs::remove_dir_all(folder.0.join("locks.db.sessions")).unwrap();
    let error = refused(&folder.db());
    assert!(error.to_string().contains("newer clinch"), "{error}");
    assert_untouched(&folder.db());
}

#[tokio::test]
async fn a_damaged_file_gives_corrupt_and_no_grant() {
    let folder = Folder::new();
    let client = folder.client();
    let claim = client.mutex("a");
    let grant = client.granted(&claim).await;
    client.store.release(&claim.hold(grant.seq)).await.unwrap();
    client.store.close().await.unwrap();
    drop(client);
    let db = rusqlite::Connection::open(folder.db()).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA journal_mode = WAL;")
        .unwrap();
    drop(db);
    let mut bytes = fs::read(folder.db()).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(folder.db(), &bytes).unwrap();
    let error = match Client::open(&folder.db(), Clock::boot()) {
        Ok(client) => client.store.claim(&client.mutex("a")).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn folders_and_missing_folders_are_named() {
    let folder = Folder::new();
    let error = refused(&folder.0);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("is a folder"), "{error}");
    let error = refused(&folder.0.join("no/such/locks.db"));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no/such"), "{error}");
    let error = refused(&folder.0.join("sub/.."));
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = Folder::new();
    fs::write(folder.db(), b"").unwrap();
    drop(folder.client());
    assert!(
        fs::read(folder.db())
            .unwrap()
            .starts_with(b"SQLite format 3")
    );
}

#[test]
fn a_file_whose_maker_died_half_way_gets_its_log() {
    let folder = Folder::new();
    drop(folder.client());
    let db = rusqlite::Connection::open(folder.db()).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    let mode = || {
        let db = rusqlite::Connection::open(folder.db()).unwrap();
        db.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))
            .unwrap()
    };
    assert_eq!(mode(), "delete");
    // Another one reads meanwhile, which keeps the log from being switched on at once.
    db.execute_batch("BEGIN; SELECT * FROM meta;").unwrap();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| drop(folder.client()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!opened.is_finished());
        db.execute_batch("COMMIT").unwrap();
    });
    assert_eq!(mode(), "wal");
}

/// A connection in its first commit: pages of the new tables are in the file, the first one is not.
fn half_made(folder: &Folder) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(folder.db()).unwrap();
    db.execute_batch("PRAGMA cache_size = 1; BEGIN EXCLUSIVE; CREATE TABLE t (x);")
        .unwrap();
    for _ in 0..64 {
        db.execute("INSERT INTO t VALUES (randomblob(4000))", [])
            .unwrap();
    }
    assert!(fs::metadata(folder.db()).unwrap().len() > 4096);
    db
}

#[test]
fn opening_waits_for_another_process_in_its_first_commit() {
    let folder = Folder::new();
    let db = half_made(&folder);
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| drop(folder.client()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!opened.is_finished());
        db.execute_batch("ROLLBACK").unwrap();
    });
}

#[test]
fn a_first_commit_whose_process_died_is_undone() {
    let (dying, folder) = (Folder::new(), Folder::new());
    let db = half_made(&dying);
    // What a killed process leaves: the file and its journal, and no lock.
    for end in ["", "-journal"] {
        let name = |folder: &Folder| format!("{}{end}", folder.db().display());
        fs::copy(name(&dying), name(&folder)).unwrap();
    }
    drop(folder.client());
    drop(db);
}

#[test]
fn many_who_open_a_new_file_at_once_all_get_it() {
    for _ in 0..20 {
        let folder = Folder::new();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let client = folder.client();
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    let listing = client.store.list("");
                    assert!(runtime.unwrap().block_on(listing).unwrap().is_empty());
                });
            }
        });
    }
}

#[tokio::test]
async fn everything_is_private_to_its_owner() {
    let folder = Folder::new();
    let client = folder.client();
    client.granted(&client.mutex("a")).await;
    let mode = |path: &str| fs::metadata(folder.0.join(path)).unwrap().mode() & 0o777;
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    assert_eq!(mode("locks.db.sessions"), 0o700);
    let session = format!("locks.db.sessions/{}.lock", client.identity.info().id);
    assert_eq!(mode(&session), 0o600);
}

#[tokio::test]
async fn nothing_is_left_in_the_session_folder() {
    let folder = Folder::new();
    let (closed, dropped) = (folder.client(), folder.client());
    for client in [&closed, &dropped] {
        let claim = client.mutex("a");
        let _wakes = client.store.wakes(&claim);
        client.store.claim(&claim).await.unwrap();
    }
    let files = |client: &Client| {
        let id = client.identity.info().id.to_string();
        let all = fs::read_dir(folder.0.join("locks.db.sessions")).unwrap();
        all.map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|file| file.starts_with(&id))
            .count()
    };
    assert_eq!(files(&closed), 2);
    closed.store.close().await.unwrap();
    assert_eq!(files(&closed), 0);
    drop((closed, dropped));
    let left = fs::read_dir(folder.0.join("locks.db.sessions"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

fn session_files(folder: &Folder) -> Vec<String> {
    let all = fs::read_dir(folder.0.join("locks.db.sessions")).unwrap();
    all.map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn a_dropped_store_takes_its_session_file_with_it() {
    let folder = Folder::new();
    for round in 0..20 {
        let client = folder.client();
        // These start the writer thread, which outlives the store for a moment.
        client.store.list("").await.unwrap();
        client.store.doctor().await.unwrap();
        let events = client.store.events("").await.unwrap();
        if round % 2 == 0 {
            client.granted(&client.mutex("a")).await;
        }
        drop(client);
        assert_eq!(session_files(&folder), [""; 0], "round {round}");
        drop(events);
    }
    let client = folder.client();
    assert!(client.store.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_store_without_claims_leaves_nothing_while_another_process_writes() {
    let folder = Folder::new();
    let (dropped, half_closed, holding) = (folder.client(), folder.client(), folder.client());
    dropped.store.list("").await.unwrap();
    let _events = dropped.store.events("").await.unwrap();
    half_closed.store.list("").await.unwrap();
    holding.granted(&holding.mutex("a")).await;
    let other = rusqlite::Connection::open(folder.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(dropped);
    let short = std::time::Duration::from_millis(20);
    let closed = tokio::time::timeout(short, half_closed.store.close()).await;
    assert!(closed.is_err(), "it does not wait for the other process");
    drop(half_closed);
    let id = holding.identity.info().id;
    assert_eq!(session_files(&folder), [format!("{id}.lock")]);
    // What it holds is still at the store: the file stays until that has ended.
    drop(holding);
    assert_eq!(session_files(&folder), [format!("{id}.lock")]);
    other.execute_batch("COMMIT").unwrap();
    for _ in 0..200 {
        if session_files(&folder).is_empty() {
            break;
        }
        tokio::time::sleep(short).await;
    }
    assert_eq!(session_files(&folder), [""; 0]);
    let next = folder.client();
    let grant = next.granted(&next.mutex("a")).await;
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Released);
    // A client with new events finds the watcher gone.
    let watchers = || {
        let sql = "SELECT count(*) FROM watchers";
        other
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    for _ in 0..200 {
        if watchers() == 0 {
            break;
        }
        tokio::time::sleep(short).await;
    }
    assert_eq!(watchers(), 0);
}

#[tokio::test]
async fn the_doctor_finds_a_healthy_store_and_a_loose_mode() {
    let folder = Folder::new();
    let client = folder.client();
    let findings = client.store.doctor().await.unwrap();
    assert!(findings.len() >= 7);
    assert!(
        findings.iter().all(|f| f.severity == Severity::Ok),
        "{findings:?}"
    );
    fs::set_permissions(folder.db(), fs::Permissions::from_mode(0o666)).unwrap();
    let findings = client.store.doctor().await.unwrap();
    let loose = findings
        .iter()
        .find(|f| f.subject == "permissions")
        .unwrap();
    assert_eq!(loose.severity, Severity::Warning);
}
