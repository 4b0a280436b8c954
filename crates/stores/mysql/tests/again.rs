//! A client that takes a name again and again does it by the version that it has left: as long as
//! no other client comes, and no client watches.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::Arc;

use clinch_core::store::{ClaimReply, Ending, EventKind, Grant, ReleaseReply};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, hold};
use tokio::sync::watch;

async fn pair(client: &Client, name: &str) -> Grant {
    let claim = client.mutex(name, LONG);
    let grant = client.granted(&claim).await;
    let released = client.store.release(&hold(&claim, &grant)).await.unwrap();
    assert_eq!(released, ReleaseReply::Released);
    grant
}

/// Takes and gives up the name until that needs no statement for rows of any kind.
async fn until_known(server: &MariaDb, client: &Client, name: &str) -> Grant {
    let mut last = pair(client, name).await;
    eventually("a name is taken by its version", async || {
        // The question who watches is asked by those who ask often.
        for _ in 0..5 {
            last = pair(client, name).await;
        }
        let before = server.status("Com_insert").unwrap();
        let grant = pair(client, name).await;
        assert!(grant.seq > last.seq);
        let last_hold = grant.predecessor.as_ref().unwrap();
        assert_eq!(
            (last_hold.seq, last_hold.ending),
            (last.seq, Ending::Released)
        );
        last = grant;
        server.status("Com_insert").unwrap() == before
    })
    .await;
    last
}

#[tokio::test]
async fn what_others_did_meanwhile_is_seen() {
    let server = MariaDb::start().unwrap();
    let (one, other) = (Client::at(&server).await, Client::at(&server).await);
    let mine = until_known(&server, &one, "a").await;
    // Another client had it in between.
    let theirs = pair(&other, "a").await;
    assert!(theirs.seq > mine.seq);
    let again = pair(&one, "a").await;
    assert!(again.seq > theirs.seq);
    assert_eq!(again.predecessor.unwrap().seq, theirs.seq);
    // Another client has it.
    until_known(&server, &one, "a").await;
    let claim = other.mutex("a", LONG);
    let theirs = other.granted(&claim).await;
    let mine = one.mutex("a", LONG);
    let reply = one.store.claim(&mine).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    other.store.release(&hold(&claim, &theirs)).await.unwrap();
    let grant = one.granted(&mine).await;
    assert!(grant.seq > theirs.seq);
    one.store.release(&hold(&mine, &grant)).await.unwrap();
    all_free(&server).await;
}

/// A copy of a claim that has ended is refused, though the row is known.
#[tokio::test]
async fn a_claim_that_has_ended_does_not_come_back() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    until_known(&server, &client, "a").await;
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    client.store.release(&hold(&claim, &grant)).await.unwrap();
    let late = client.store.claim(&claim).await.unwrap();
    assert!(matches!(late, ClaimReply::Gone(_)), "{late:?}");
    pair(&client, "a").await;
    let late = client.store.claim(&claim).await.unwrap();
    assert!(matches!(late, ClaimReply::Gone(_)), "{late:?}");
    all_free(&server).await;
}

/// The row was deleted.
#[tokio::test]
async fn a_row_that_is_gone_is_made_anew() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    let before = until_known(&server, &client, "a").await;
    server.sql("DELETE FROM clinch_names").unwrap();
    assert!(pair(&client, "a").await.seq > before.seq);
    all_free(&server).await;
}

/// A new watcher sees all that a busy client does from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_misses_nothing_of_a_busy_client() {
    let server = MariaDb::start().unwrap();
    let (busy, watcher) = (Client::at(&server).await, Client::at(&server).await);
    let busy = Arc::new(busy);
    until_known(&server, &busy, "a").await;
    let (stop, stopped) = watch::channel(false);
    let working = {
        let (busy, stopped) = (busy.clone(), stopped.clone());
        tokio::spawn(async move {
            while !*stopped.borrow() {
                pair(&busy, "a").await;
            }
        })
    };
    let mut events = watcher.store.events("").await.unwrap();
    stop.send(true).unwrap();
    working.await.unwrap();
    let mine = pair(&busy, "a").await;
    for kind in [EventKind::Granted, EventKind::Released] {
        loop {
            let event = soon("an event", events.next()).await.unwrap();
            if event.kind == kind && event.token.is_some_and(|token| token.seq() == mine.seq) {
                break;
            }
        }
    }
    all_free(&server).await;
}
