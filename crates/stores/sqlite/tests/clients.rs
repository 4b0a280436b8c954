//! Several clients on one file: exclusion, order, wakes, deaths, events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use clinch_core::blocking::block_on;
use clinch_core::store::{
    Admin, ClaimReply, Ending, EventKind, LostReason, ReleaseReply, RenewReply, Renewal, Store,
    Wake,
};
use clinch_core::{Clock, ErrorKind};
use clinch_testkit::fork::in_child;
use clinch_testkit::wait::eventually;
use common::{Client, Folder, name};

const SOON: Duration = Duration::from_secs(5);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("too late")
}

#[tokio::test]
async fn a_release_pushes_the_grant_to_the_next_client() {
    let folder = Folder::new();
    let (a, b, c) = (folder.client(), folder.client(), folder.client());
    let first = a.mutex("n");
    let grant = a.granted(&first).await;
    let (second, third) = (b.mutex("n"), c.mutex("n"));
    let (mut b_wakes, mut c_wakes) = (b.store.wakes(&second), c.store.wakes(&third));
    assert_eq!(b.queued(&second).await.ahead, 0);
    assert_eq!(c.queued(&third).await.ahead, 1);
    let reply = a.store.release(&first.hold(grant.seq)).await.unwrap();
    assert_eq!(reply, ReleaseReply::Released);
    let Some(Wake::Granted(pushed)) = soon(b_wakes.next()).await else {
        panic!("no grant was pushed");
    };
    assert!(pushed.seq > grant.seq);
    let before = pushed.predecessor.clone().unwrap();
    assert_eq!((before.seq, before.ending), (grant.seq, Ending::Released));
    // The repeated claim says the same, and the one behind heard nothing.
    assert_eq!(b.granted(&second).await.seq, pushed.seq);
    let silent = tokio::time::timeout(Duration::from_millis(50), c_wakes.next()).await;
    assert!(silent.is_err());
    b.store.release(&second.hold(pushed.seq)).await.unwrap();
    assert!(matches!(soon(c_wakes.next()).await, Some(Wake::Granted(_))));
}

#[tokio::test]
async fn wakes_cross_a_path_too_long_for_a_socket() {
    let folder = Folder::new();
    let deep = folder.0.join("d".repeat(150));
    std::fs::create_dir(&deep).unwrap();
    let open = || Client::open(&deep.join("locks.db"), Clock::boot()).unwrap();
    let (a, b) = (open(), open());
    let (first, second) = (a.mutex("n"), b.mutex("n"));
    let grant = a.granted(&first).await;
    let mut wakes = b.store.wakes(&second);
    b.queued(&second).await;
    a.store.release(&first.hold(grant.seq)).await.unwrap();
    assert!(matches!(soon(wakes.next()).await, Some(Wake::Granted(_))));
}

#[tokio::test]
async fn a_dropped_store_frees_its_locks_at_once() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    a.granted(&a.mutex("n")).await;
    let waiting = b.mutex("n");
    let mut wakes = b.store.wakes(&waiting);
    b.queued(&waiting).await;
    drop(a);
    assert!(matches!(soon(wakes.next()).await, Some(Wake::Granted(_))));
}

#[tokio::test]
async fn a_closed_store_refuses_and_frees() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    a.granted(&a.mutex("n")).await;
    a.store.close().await.unwrap();
    a.store.close().await.unwrap();
    let error = a.store.claim(&a.mutex("n")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let grant = b.granted(&b.mutex("n")).await;
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Released);
}

/// Holds a lock until it is killed, when a test below starts it so.
#[tokio::test]
async fn helper_that_holds() {
    let Some(path) = std::env::var_os("CLINCH_TEST_HOLD") else {
        return;
    };
    let client = Client::open(path.as_ref(), Clock::boot()).unwrap();
    // Held, or waited for if somebody has it.
    for wanted in ["n", "second"] {
        client.store.claim(&client.mutex(wanted)).await.unwrap();
    }
    println!("\nready");
    std::future::pending::<()>().await;
}

fn holder(folder: &Folder) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_holds", "--nocapture"])
        .env("CLINCH_TEST_HOLD", folder.db())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "ready"));
    child
}

#[tokio::test]
async fn a_killed_holder_is_noticed_without_polling() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    let client = folder.client();
    let waiting = client.mutex("n");
    let mut wakes = client.store.wakes(&waiting);
    client.queued(&waiting).await;
    child.kill().unwrap();
    assert_eq!(soon(wakes.next()).await, Some(Wake::Hint));
    let grant = client.granted(&waiting).await;
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Expired);
    child.wait().unwrap();
}

#[tokio::test]
async fn a_grant_passes_over_a_dead_waiter() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let first = a.mutex("n");
    let grant = a.granted(&first).await;
    let mut child = holder(&folder);
    let third = b.mutex("n");
    let mut wakes = b.store.wakes(&third);
    assert_eq!(b.queued(&third).await.ahead, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // The waiter ahead has died; that is a hint too, and the place improves by itself.
    assert_eq!(soon(wakes.next()).await, Some(Wake::Hint));
    a.store.release(&first.hold(grant.seq)).await.unwrap();
    assert!(matches!(soon(wakes.next()).await, Some(Wake::Granted(_))));
}

#[tokio::test]
async fn the_dead_are_not_listed_and_not_current() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    let client = folder.client();
    let locks = client.store.list("n").await.unwrap();
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].holders[0].pid, child.id());
    let seq = locks[0].holders[0].token.unwrap().seq();
    assert!(
        client
            .store
            .check(&name("n"), seq)
            .await
            .unwrap()
            .is_current()
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !client
            .store
            .check(&name("n"), seq)
            .await
            .unwrap()
            .is_current()
    );
    assert!(client.store.list("").await.unwrap().is_empty());
    assert!(client.store.inspect(&name("n")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_removed_session_folder_does_not_kill_the_living() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    std::fs::remove_dir_all(folder.0.join("locks.db.sessions")).unwrap();
    let client = folder.client();
    client.queued(&client.mutex("n")).await;
    let views = client.store.list("n").await.unwrap();
    assert_eq!(views[0].holders[0].pid, child.id());
    // Without the file nobody knows that it has died, so the lease decides.
    child.kill().unwrap();
    child.wait().unwrap();
    let views = client.store.list("n").await.unwrap();
    assert_eq!(views[0].holders[0].pid, child.id());
}

#[tokio::test]
async fn a_death_that_was_found_on_one_name_is_known_on_every_other() {
    let folder = Folder::new();
    let (mut child, client) = (holder(&folder), folder.client());
    child.kill().unwrap();
    child.wait().unwrap();
    client.granted(&client.mutex("n")).await;
    let sessions = std::fs::read_dir(folder.0.join("locks.db.sessions")).unwrap();
    assert_eq!(sessions.count(), 1, "only the living one's file is left");
    client.granted(&client.mutex("second")).await;
}

#[tokio::test]
async fn events_arrive_in_order_and_from_other_clients() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let mut events = a.store.events("orders/").await.unwrap();
    let claim = b.mutex("orders/1");
    let grant = b.granted(&claim).await;
    b.granted(&b.mutex("elsewhere")).await;
    let waiting = a.mutex("orders/1");
    a.queued(&waiting).await;
    b.store.release(&claim.hold(grant.seq)).await.unwrap();
    a.store.withdraw(&waiting).await.unwrap();
    let mut kinds = Vec::new();
    while kinds.len() < 5 {
        let event = soon(events.next()).await.unwrap();
        assert_eq!(event.name.as_str(), "orders/1");
        kinds.push(event.kind);
    }
    use EventKind::{Granted, Queued, Released};
    assert_eq!(kinds, [Granted, Queued, Released, Granted, Released]);
    a.store.close().await.unwrap();
    assert!(soon(events.next()).await.is_none());
}

#[tokio::test]
async fn nobody_watching_means_no_event_rows() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let rows = || {
        let db = rusqlite::Connection::open(folder.db()).unwrap();
        let sql = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM watchers)";
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    a.granted(&a.mutex("n")).await;
    assert_eq!(rows(), 0);
    let events = a.store.events("").await.unwrap();
    b.granted(&b.mutex("m")).await;
    assert_eq!(rows(), 2);
    let mut second = a.store.events("").await.unwrap();
    drop(events);
    // The end of the first one ends nothing for the second one.
    for number in 0..20 {
        b.granted(&b.mutex(&format!("m{number}"))).await;
        let event = soon(second.next()).await.unwrap();
        assert_eq!(event.name.as_str(), format!("m{number}"));
    }
    drop(second);
    eventually("nobody watches", async || rows() == 0).await;
    let _third = a.store.events("").await.unwrap();
    assert_eq!(rows(), 1);
    a.store.close().await.unwrap();
    assert_eq!(rows(), 0);
}

#[tokio::test]
async fn an_old_number_changes_nothing() {
    let folder = Folder::new();
    let a = folder.client();
    let claim = a.mutex("n");
    let grant = a.granted(&claim).await;
    let mut old = claim.hold(grant.seq);
    old.seq -= 1;
    let renewal =
        |hold: &clinch_core::store::Hold| Renewal::new(hold.clone(), Duration::from_secs(5));
    let replies = a
        .store
        .renew(&[renewal(&old), renewal(&claim.hold(grant.seq))])
        .await
        .unwrap();
    assert!(matches!(replies[0], RenewReply::Lost(_)));
    assert_eq!(replies[1], RenewReply::Held);
    assert!(matches!(
        a.store.release(&old).await.unwrap(),
        ReleaseReply::WasLost(_)
    ));
    assert!(
        a.store
            .check(&claim.name, grant.seq)
            .await
            .unwrap()
            .is_current()
    );
}

#[tokio::test]
async fn a_withdrawn_claim_is_refused_when_it_arrives_late() {
    let folder = Folder::new();
    let a = folder.client();
    let late = a.mutex("n");
    a.store.withdraw(&late).await.unwrap();
    let reply = a.store.claim(&late).await.unwrap();
    assert_eq!(reply, ClaimReply::Gone(LostReason::Released));
    a.granted(&a.mutex("n")).await;
}

#[tokio::test]
async fn a_dropped_future_leaves_the_store_usable() {
    let folder = Folder::new();
    let a = folder.client();
    for polls in 0..3 {
        let claim = a.mutex("n");
        let mut future = a.store.claim(&claim);
        for _ in 0..polls {
            let _ = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(future.as_mut().poll(cx).is_ready())
            })
            .await;
        }
        drop(future);
        soon(a.store.withdraw(&claim)).await.unwrap();
        let next = a.mutex("n");
        let grant = a.granted(&next).await;
        a.store.release(&next.hold(grant.seq)).await.unwrap();
    }
}

#[tokio::test]
async fn another_processs_transaction_is_waited_for_and_then_reported() {
    let folder = Folder::new();
    drop(folder.client());
    let url = format!("sqlite:{}?busy=300ms", folder.db().display());
    let a = Client::open_url(&url, Clock::boot()).unwrap();
    let other = rusqlite::Connection::open(folder.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = soon(a.store.claim(&a.mutex("n"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_taken_effect());
    // This one waits for longer than any machine takes to end the transaction.
    let patient = folder.client();
    let claim = patient.mutex("n");
    let waiting = patient.store.claim(&claim);
    let releasing = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (reply, ()) = tokio::join!(waiting, releasing);
    assert!(matches!(reply.unwrap(), ClaimReply::Granted(_)));
}

#[test]
fn many_claims_share_few_transactions_on_any_executor() {
    for threads in [1, 2] {
        let folder = Folder::new();
        let client = std::sync::Arc::new(folder.client());
        let runtime = match threads {
            1 => tokio::runtime::Builder::new_current_thread().build(),
            n => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(n)
                .build(),
        }
        .unwrap();
        let before = client.operations.count();
        runtime.block_on(async {
            let claims = (0..500).map(|n| {
                let client = client.clone();
                runtime.spawn(async move { client.granted(&client.mutex(&format!("n{n}"))).await })
            });
            for claim in claims.collect::<Vec<_>>() {
                claim.await.unwrap();
            }
        });
        let transactions = client.operations.count() - before;
        assert!(
            transactions < 250,
            "{transactions} for 500 claims on {threads} threads"
        );
        assert_eq!(runtime.block_on(client.store.list("")).unwrap().len(), 500);
    }
}

#[tokio::test]
async fn one_refused_operation_does_not_fail_its_group() {
    let folder = Folder::new();
    let a = folder.client();
    a.granted(&a.mutex("used")).await;
    let mut wrong = a.mutex("used");
    wrong.limit = 3;
    let (left, right) = (a.mutex("l"), a.mutex("r"));
    let (l, w, r) = tokio::join!(
        a.store.claim(&left),
        a.store.claim(&wrong),
        a.store.claim(&right)
    );
    assert_eq!(w.unwrap_err().kind(), ErrorKind::Mismatch);
    assert!(matches!(l.unwrap(), ClaimReply::Granted(_)));
    assert!(matches!(r.unwrap(), ClaimReply::Granted(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_by_claims_that_race_with_close() {
    for _ in 0..30 {
        let folder = Folder::new();
        let (a, b) = (std::sync::Arc::new(folder.client()), folder.client());
        let racing = (0..8).map(|n| {
            let a = a.clone();
            tokio::spawn(async move { a.store.claim(&a.mutex(&format!("n{n}"))).await.map(drop) })
        });
        let racing: Vec<_> = racing.collect();
        soon(a.store.close()).await.unwrap();
        for claim in racing {
            if let Err(error) = soon(claim).await.unwrap() {
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
        }
        assert!(b.store.list("").await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn close_waits_for_another_processs_transaction() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    a.granted(&a.mutex("n")).await;
    let other = rusqlite::Connection::open(folder.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (closed, ()) = tokio::join!(soon(a.store.close()), ending);
    closed.unwrap();
    b.granted(&b.mutex("n")).await;
}

#[tokio::test]
async fn a_store_that_is_dropped_in_a_forked_child_leaves_the_parents_session() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let claim = a.mutex("n");
    let grant = a.granted(&claim).await;
    let session = folder
        .0
        .join(format!("locks.db.sessions/{}.lock", a.identity.info().id));
    let (mut copy, mut idle) = (Some(a), Some(folder.client()));
    let sessions = || {
        std::fs::read_dir(folder.0.join("locks.db.sessions"))
            .unwrap()
            .count()
    };
    let before = sessions();
    in_child(|| {
        let a = copy.take().ok_or("no client")?;
        let refused = [
            block_on(a.store.claim(&a.mutex("m"))).map(drop),
            block_on(a.store.release(&claim.hold(grant.seq))).map(drop),
        ];
        for outcome in refused {
            // A new connection would not help: SQLite takes the parent's locks for the child's.
            let advice = outcome.as_ref().err().and_then(|error| error.advice());
            if !advice.is_some_and(|advice| advice.contains("exec")) {
                return Err(format!("{advice:?}"));
            }
            let kind = outcome.map_err(|error| error.kind());
            if kind != Err(ErrorKind::Closed) {
                return Err(format!("{kind:?}"));
            }
        }
        block_on(a.store.close()).map_err(|error| error.to_string())?;
        // One with a claim, and one whose file would be removed.
        drop((a, idle.take()));
        Ok(())
    })
    .unwrap();
    assert!(session.exists());
    assert_eq!(sessions(), before);
    let waiting = b.mutex("n");
    b.queued(&waiting).await;
    let a = copy.unwrap();
    let renewal = Renewal::new(claim.hold(grant.seq), claim.lease);
    assert_eq!(a.store.renew(&[renewal]).await.unwrap(), [RenewReply::Held]);
    drop(a);
    b.granted(&waiting).await;
}
