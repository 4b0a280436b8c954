//! Session files: never unlocked while their client lives.

use std::fs::File;
use std::sync::atomic::AtomicBool;

use super::*;

fn session_of(machine: &Machine, identity: &Identity) -> PathBuf {
    machine
        .sessions()
        .join(format!("{}.lock", identity.info().id))
}

#[test]
fn a_session_file_is_locked_whenever_it_is_seen() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let (path, end) = (session_of(&machine, &identity), AtomicBool::new(false));
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !end.load(Ordering::SeqCst) {
                if let Ok(file) = File::open(&path) {
                    assert!(
                        file.try_lock_shared().is_err(),
                        "unlocked after {seen:?} reads"
                    );
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        // Start after its first read: it may get no CPU time until the loop below has ended.
        while seen.load(Ordering::SeqCst) == 0 && !looking.is_finished() {
            std::thread::yield_now();
        }
        for _ in 0..400 {
            let _ = fs::remove_file(&path);
            store
                .batcher
                .with_database(|database| database.sessions.restore());
            if looking.is_finished() {
                break;
            }
        }
        end.store(true, Ordering::SeqCst);
        looking.join().unwrap();
    });
    assert!(path.exists());
    drop(store);
    assert_eq!(fs::read_dir(machine.sessions()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_log_that_is_removed_in_a_transaction_grants_nothing() {
    for end in ["-wal", "-shm"] {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        pair(&store, &identity, "n").await;
        let (claim, log) = (claim(&identity, "n"), format!("locks.db{end}"));
        let log = machine.folder.join(log);
        let step = move |tx: &mut crate::transaction::Tx<'_>| {
            // The process was stopped here.
            let _ = fs::remove_file(&log);
            crate::claim::claim(tx, &claim, 1)
        };
        let error = store.batcher.call(Route::Inline, step).await.unwrap_err();
        assert!(error.to_string().contains("was removed"), "{end}: {error}");
        assert!(!error.may_have_taken_effect(), "{end}: {error}");
    }
}

#[tokio::test]
async fn a_file_of_the_version_before_is_taken_over() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let before = pair(&store, &identity, "n").await;
    drop(store);
    let db = rusqlite::Connection::open(machine.db()).unwrap();
    db.execute_batch("DROP TABLE missing; PRAGMA user_version = 1;")
        .unwrap();
    drop(db);
    let (store, identity) = machine.open();
    assert!(pair(&store, &identity, "n").await > before);
}

#[tokio::test]
async fn a_draft_of_a_dead_client_is_swept_away() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let draft = machine.sessions().join("00000000000000ab.new");
    let name = session_of(&machine, &identity);
    assert_eq!(
        name.file_stem().unwrap().len(),
        draft.file_stem().unwrap().len()
    );
    fs::write(&draft, b"").unwrap();
    clean(&store).await;
    assert!(!draft.exists());
}
