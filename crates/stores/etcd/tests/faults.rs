//! Faults of the network, and interference at the server by other programs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it acts as a user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{ClaimReply, Ending, RenewReply};
use clinch_core::{LostReason, ReleaseReply};
use clinch_testkit::proxy::{Link, Proxy, Then};
use clinch_testkit::servers::Etcd;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, is_kept, number, proxy, renewal, through, until};

/// Long enough for a hold to survive one failed connection.
const LEASE: Duration = Duration::from_secs(4);

/// The current connection.
fn link(proxy: &Proxy) -> Link {
    proxy.links().pop().unwrap()
}

/// The reply to a claim is lost, in each way: the claim is repeated and granted once.
#[tokio::test]
async fn the_reply_of_a_claim_is_lost() {
    let server = Etcd::start().unwrap();
    let watcher = clinch(&server.url()).await;
    for then in [Then::Reset, Then::Silence, Then::Hold, Then::Stay] {
        let proxy = proxy(&server).await;
        let one = clinch(&through(&proxy)).await;
        // Its leases exist now: from here on a claim has one reply.
        let warm = one.lock("warm").lease(LEASE).acquire().await.unwrap();
        warm.release().await.unwrap();
        link(&proxy).swallow(1, then);
        let guard = soon("the repaired claim", one.lock("a").lease(LEASE).acquire())
            .await
            .unwrap();
        until(&watcher, "a", 1, 0).await;
        let view = watcher.inspect("a").await.unwrap().unwrap();
        let seq = view.holders[0].token.unwrap().seq();
        assert_eq!(seq, number(&guard), "{then:?}");
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
        until(&watcher, "a", 0, 0).await;
        let next = watcher.lock("a").lease(LONG).try_acquire().await.unwrap();
        assert!(
            next.is_some(),
            "a late copy of the claim has come: {then:?}"
        );
    }
}

/// The reply to a release is lost: the repeated release has the same result.
#[tokio::test]
async fn the_reply_of_a_release_is_lost() {
    let server = Etcd::start().unwrap();
    let proxy = proxy(&server).await;
    let (one, two) = (clinch(&through(&proxy)).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    link(&proxy).swallow(1, Then::Reset);
    let end = soon("the repaired release", guard.release()).await.unwrap();
    assert_eq!(end, ReleaseReply::Released);
    let next = two
        .lock("a")
        .lease(LONG)
        .try_acquire()
        .await
        .unwrap()
        .unwrap();
    let before = next.predecessor().unwrap();
    assert_eq!(before.ending, Ending::Released);
}

/// The same, but other clients have held the lock meanwhile and replaced the end record.
#[tokio::test]
async fn the_reply_of_a_release_is_lost_and_others_come_between() {
    let server = Etcd::start().unwrap();
    let proxy = proxy(&server).await;
    let one = Client::open(&through(&proxy)).await.unwrap();
    let two = clinch(&server.url()).await;
    let claim = one.mutex("a", LONG);
    let grant = one.granted(&claim).await;
    link(&proxy).swallow(1, Then::Reset);
    let unknown = one.store.release(&hold(&claim, &grant)).await.unwrap_err();
    assert!(unknown.may_have_taken_effect(), "{unknown}");
    for _ in 0..2 {
        let next = two.lock("a").lease(LONG).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    let end = one.store.release(&hold(&claim, &grant)).await.unwrap();
    assert_eq!(end, ReleaseReply::Released);
}

/// A claim whose reply was lost is withdrawn: copies still under way arrive too late.
#[tokio::test]
async fn a_claim_with_a_lost_reply_is_withdrawn() {
    let server = Etcd::start().unwrap();
    let proxy = proxy(&server).await;
    let one = Client::open(&through(&proxy)).await.unwrap();
    let two = clinch(&server.url()).await;
    let warm = one.mutex("warm", LONG);
    one.granted(&warm).await;
    let claim = one.mutex("a", LONG);
    link(&proxy).swallow(1, Then::Silence);
    let unknown = one.store.claim(&claim).await.unwrap_err();
    assert!(unknown.may_have_taken_effect(), "{unknown}");
    until(&two, "a", 1, 0).await;
    one.store.withdraw(&claim).await.unwrap();
    until(&two, "a", 0, 0).await;
    let late = one.store.claim(&claim).await.unwrap();
    assert!(
        matches!(late, ClaimReply::Gone(LostReason::Released)),
        "{late:?}"
    );
    // Also without the client's ledger: the tombstone is at the server.
    let keys = server
        .ctl(&["get", "--prefix", "--keys-only", "clinch/a.!gone-"])
        .unwrap();
    assert!(keys.contains(&claim.request.to_string()), "{keys}");
}

/// A lease revoked by another program ends the hold; the holder detects it at its next renewal.
#[tokio::test]
async fn a_lease_revoked_from_outside() {
    let server = Etcd::start().unwrap();
    let (one, two) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let fields = server
        .ctl(&["get", "--prefix", "--write-out=fields", "clinch/a/"])
        .unwrap();
    let lease = fields
        .lines()
        .find_map(|line| line.strip_prefix("\"Lease\" : "))
        .unwrap();
    let lease = format!("{:x}", lease.parse::<i64>().unwrap());
    server.ctl(&["lease", "revoke", &lease]).unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired);
    let next = two.lock("a").lease(LONG).acquire().await.unwrap();
    assert!(number(&next) > number(&guard));
    assert_eq!(next.predecessor().unwrap().ending, Ending::Expired);
    // The client continues with a new lease.
    assert!(
        one.lock("b")
            .lease(LEASE)
            .acquire()
            .await
            .unwrap()
            .is_valid()
    );
}

/// A key deleted by another program is a lost hold, although its lease lives on for another hold.
#[tokio::test]
async fn a_key_deleted_from_outside() {
    let server = Etcd::start().unwrap();
    let one = clinch(&server.url()).await;
    let other = one.lock("b").lease(LEASE).acquire().await.unwrap();
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    server.ctl(&["del", "--prefix", "clinch/a/"]).unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Forgotten);
    is_kept(&other, LEASE).await;
}

/// The same with a lock-delay: it begins with the loss and ends, although its lease lives on.
#[tokio::test]
async fn a_lock_delay_after_a_deleted_key_ends() {
    let server = Etcd::start().unwrap();
    let (one, two) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let delay = Duration::from_secs(2);
    let other = one
        .lock("b")
        .lease(LEASE)
        .lock_delay(delay)
        .acquire()
        .await
        .unwrap();
    let guard = one
        .lock("a")
        .lease(LEASE)
        .lock_delay(delay)
        .acquire()
        .await
        .unwrap();
    let began = two.clock().now();
    server.ctl(&["del", "--prefix", "clinch/a/"]).unwrap();
    let lock = two.lock("a").lease(LONG);
    assert!(lock.try_acquire().await.unwrap().is_none(), "no delay");
    let next = soon("the end of the delay", lock.acquire()).await.unwrap();
    assert!(two.clock().now().since(began) >= delay);
    assert!(!guard.is_valid() && next.is_valid() && other.is_valid());
}

/// Events that a waiter has not received yet are compacted while its connection is broken.
#[tokio::test]
async fn a_compaction_while_waiting() {
    let server = Etcd::start().unwrap();
    let proxy = proxy(&server).await;
    let (one, two) = (clinch(&server.url()).await, clinch(&through(&proxy)).await);
    for _ in 0..3 {
        let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
        let lock = two.lock("a").lease(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until(&one, "a", 1, 1).await;
        proxy.down();
        guard.release().await.unwrap();
        for n in 0..10 {
            server.ctl(&["put", "other", &n.to_string()]).unwrap();
        }
        let status = server.ctl(&["get", "other", "--write-out=fields"]).unwrap();
        let revision = status
            .lines()
            .find_map(|l| l.strip_prefix("\"Revision\" : "))
            .unwrap();
        server.ctl(&["compact", revision]).unwrap();
        proxy.heal();
        let guard = soon("the waiter", waiter).await.unwrap().unwrap();
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
}

/// The watch stream breaks while many claims wait: each waiter lists again and watches from there.
#[tokio::test]
async fn a_stream_that_breaks_while_many_wait() {
    let server = Etcd::start().unwrap();
    let proxy = proxy(&server).await;
    let (one, two) = (clinch(&server.url()).await, clinch(&through(&proxy)).await);
    let mut waiters = Vec::new();
    let mut guards = Vec::new();
    for n in 0..8 {
        let name = format!("n{n}");
        guards.push(one.lock(&name).lease(LONG).acquire().await.unwrap());
        let lock = two.lock(&name).lease(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
        until(&one, &name, 1, 1).await;
    }
    proxy.reset();
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        let guard = soon("a waiter", waiter).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

/// A renewal with another length moves the key to another lease and keeps its sequence number.
#[tokio::test]
async fn a_renewal_with_another_length() {
    let server = Etcd::start().unwrap();
    let one = Client::open(&server.url()).await.unwrap();
    let claim = one.mutex("a", Duration::from_secs(2));
    let grant = one.granted(&claim).await;
    let mut longer = renewal(&claim, &grant);
    longer.lease = LONG;
    assert_eq!(
        one.store.renew(&[longer]).await.unwrap(),
        [RenewReply::Held]
    );
    let view = one.store.inspect(&claim.name).await.unwrap().unwrap();
    assert!(view.holders[0].lease_left > claim.lease * 4);
    assert_eq!(view.holders[0].token.unwrap().seq(), grant.seq);
}

/// No key is left behind: every key is attached to a lease, end records to one that is not extended.
#[tokio::test]
async fn every_key_hangs_on_a_lease() {
    let server = Etcd::start().unwrap();
    let url = format!("{}?remember=5s", server.url());
    let one = clinch(&url).await;
    for n in 0..20 {
        let lock = one.lock(format!("n{n}")).lease(LEASE);
        let guard = lock.acquire().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    let all = server
        .ctl(&["get", "--prefix", "--write-out=fields", "clinch/"])
        .unwrap();
    assert!(all.contains(".!ended"));
    assert!(!all.contains("\"Lease\" : 0\n"), "{all}");
    one.close().await.unwrap();
    eventually("all keys have expired", async || {
        let all = server
            .ctl(&["get", "--prefix", "--keys-only", "clinch/"])
            .unwrap();
        all.trim().is_empty()
    })
    .await;
}
