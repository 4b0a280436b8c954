//! Losses that are noticed before the next renewal is due.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_core::store::{RenewReply, Suspicion};
use clinch_core::{Clock, LostReason, Status};
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, proxy, renewal, room, shared, through};

/// Nothing is renewed here, so the lost connection alone causes the suspicion: of the holds of its session,
/// not of its waiters.
#[tokio::test]
async fn a_lost_connection_makes_the_holds_of_its_session_suspect() {
    let proxy = proxy(shared()).await;
    let client = Client::at(&through(&proxy, "suspicion")).await;
    let other = Client::at(&room(&shared().url(), "suspicion")).await;
    let (held, waiting) = (client.mutex("a", LONG), client.mutex("b", LONG));
    let grant = client.granted(&held).await;
    other.granted(&other.mutex("b", LONG)).await;
    client.queued(&waiting).await;
    // Another lease, another session: it has a connection of its own.
    client.granted(&client.mutex("c", LONG / 2)).await;
    let mut suspicions = client.store.suspicions();
    // The first link is the one that belongs to no claim.
    proxy.links()[1].reset();
    let expected = Some(Suspicion::Of(vec![held.request]));
    assert_eq!(soon("the suspicion", suspicions.next()).await, expected);
    soon("a renewal", async {
        loop {
            match client.store.renew(&[renewal(&held, &grant)]).await {
                Ok(replies) => return assert_eq!(replies, [RenewReply::Held]),
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    })
    .await;
}

/// Long before a renewal is due. Only an acknowledged renewal clears it.
#[tokio::test]
async fn a_guard_is_suspect_while_there_is_no_connection() {
    let proxy = proxy(shared()).await;
    let client = clinch(&through(&proxy, "suspect")).await;
    let guard = client.lock("a").lease(LONG).acquire().await.unwrap();
    assert_eq!(guard.status(), Status::Held);
    proxy.down();
    eventually("it is suspect", async || guard.status() == Status::Suspect).await;
    let left = guard.remaining();
    assert!(left > LONG / 2, "no renewal was due: {left:?}");
    proxy.heal();
    eventually("it is sure again", async || guard.status() == Status::Held).await;
    assert!(guard.remaining() > left, "it was not renewed");
    // It has been renewed once, so an eviction is noticed as well, long before the next renewal.
    let other = clinch(&room(&shared().url(), "suspect")).await;
    let deadline = Clock::boot().now() + LONG / 4;
    other.evict("a", None).await.unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Evicted);
    assert!(
        Clock::boot().now() < deadline,
        "it was noticed by a renewal"
    );
}

/// An operator deletes the node with any tool.
#[tokio::test]
async fn a_node_that_was_deleted_by_others_is_missed_soon() {
    let client = Client::at(&room(&shared().url(), "deleted")).await;
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    let mut suspicions = client.store.suspicions();
    let renewed = client.store.renew(&[renewal(&claim, &grant)]).await;
    assert_eq!(renewed.unwrap(), [RenewReply::Held]);
    let server = format!("127.0.0.1:{}", shared().port());
    let driver = zookeeper_client::Client::connect(&server).await.unwrap();
    let folder = "/deleted/clinch/a";
    let node = driver.list_children(folder).await.unwrap().pop().unwrap();
    driver
        .delete(&format!("{folder}/{node}"), None)
        .await
        .unwrap();
    let expected = Some(Suspicion::Of(vec![claim.request]));
    assert_eq!(soon("the suspicion", suspicions.next()).await, expected);
    let renewed = client.store.renew(&[renewal(&claim, &grant)]).await;
    let lost = RenewReply::Lost(LostReason::Forgotten);
    assert_eq!(renewed.unwrap(), [lost]);
    // A release by this client causes no suspicion.
    let claim = client.mutex("b", LONG);
    let grant = client.granted(&claim).await;
    let renewed = client.store.renew(&[renewal(&claim, &grant)]).await;
    assert_eq!(renewed.unwrap(), [RenewReply::Held]);
    client.store.release(&hold(&claim, &grant)).await.unwrap();
    client.store.close().await.unwrap();
    assert_eq!(soon("the end", suspicions.next()).await, None);
}
