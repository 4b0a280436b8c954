//! Commits that fail.

use super::*;

/// Makes the next commits of a store fail: by a hook, after which SQLite has rolled back by itself,
/// or by a constraint, after which the transaction is still open.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Hook,
    Constraint,
}

impl Failure {
    fn set(self, store: &SqliteStore, on: bool) {
        store.batcher.with_database(|database| match self {
            Self::Hook => {
                let hook = on.then_some(|| true);
                database.connection_mut().commit_hook(hook).unwrap();
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
                database.connection().execute_batch(sql).unwrap();
            }
            Self::Constraint => {
                let sql = "DROP TRIGGER made; DROP TRIGGER changed;
                    DROP TABLE children; DROP TABLE parents;";
                database.connection().execute_batch(sql).unwrap();
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
        // Both in one transaction: neither error may rule out an effect.
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
async fn a_release_whose_commit_fails_wakes_no_client_and_close_ends_the_hold() {
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
            // It is held according to the file, so no client may have got another answer.
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
