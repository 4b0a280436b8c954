//! Several clients on one file: exclusion, order, wakes, deaths, events.

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
mod deaths;
mod events;

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
    // The repeated claim has the same grant, and the one behind got no wake.
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
