//! Members of a cluster are killed, paused, cut off and restarted.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it acts as a user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::{Guard, LostReason};
use clinch_testkit::servers::EtcdCluster;
use clinch_testkit::wait::{eventually, soon};
use common::{LONG, clinch, is_kept, number, pass, until};

/// Long enough for an election on a busy machine; renewals are sent every third of it.
const LEASE: Duration = Duration::from_secs(9);
const SHORT: Duration = Duration::from_secs(2);

fn with_short_timeout(cluster: &EtcdCluster) -> String {
    format!("{}/?timeout=500ms", cluster.url())
}

#[tokio::test]
async fn the_leader_is_killed() {
    let cluster = EtcdCluster::start().unwrap();
    let (one, two) = (
        clinch(&with_short_timeout(&cluster)).await,
        clinch(&with_short_timeout(&cluster)).await,
    );
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until(&one, "a", 1, 1).await;
    let leader = cluster.leader().unwrap();
    cluster.members()[leader].kill().unwrap();
    is_kept(&guard, LEASE * 3 / 2).await;
    assert!(!waiter.is_finished(), "two hold it");
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("the waiter", waiter).await.unwrap().unwrap();
    assert!(next.is_valid());
    next.release().await.unwrap();
    cluster.members()[leader].start_again().unwrap();
    assert!(
        one.lock("a")
            .lease(LONG)
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

/// The leader is paused for two leases and then resumed. Servers before 3.4.42 and 3.5.13 may then
/// revoke live leases: the holder detects the loss, and tokens stay in order.
#[tokio::test]
async fn the_leader_stands_still_for_two_leases() {
    let cluster = EtcdCluster::start().unwrap();
    let one = clinch(&with_short_timeout(&cluster)).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let leader = cluster.leader().unwrap();
    cluster.members()[leader].pause().unwrap();
    is_kept(&guard, LEASE * 2).await;
    cluster.members()[leader].resume().unwrap();
    let two = clinch(&cluster.members()[(leader + 1) % 3].url()).await;
    let lock = two.lock("a").lease(LONG);
    let mut waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::select! {
        next = &mut waiter => {
            let next = next.unwrap().unwrap();
            assert!(number(&next) > number(&guard));
            // Detected by its next renewal, which is due after a third of the lease.
            soon("the loss", guard.lost()).await;
            assert!(next.is_valid());
        }
        () = pass(LEASE) => {
            assert!(guard.is_valid());
            let old = number(&guard);
            assert!(guard.release().await.unwrap().was_held());
            let next = soon("the waiter", waiter).await.unwrap().unwrap();
            assert!(number(&next) > old);
        }
    }
}

/// The client reaches only the leader, and the leader reaches no other member: its keep-alives are no longer
/// trusted, and the client's hold is invalid before a client on the other side enters.
#[tokio::test]
async fn a_member_is_cut_off_together_with_the_client() {
    let cluster = EtcdCluster::start_divisible().unwrap();
    let leader = cluster.leader().unwrap();
    let alone = format!("{}/?timeout=500ms", cluster.members()[leader].url());
    let one = clinch(&alone).await;
    let two = clinch(&cluster.members()[(leader + 1) % 3].url()).await;
    let guard = one.lock("a").lease(SHORT).acquire().await.unwrap();
    cluster.cut_off(leader).unwrap();
    let lock = two.lock("a").lease(LONG);
    let entering = tokio::spawn(async move { lock.acquire().await });
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    let next = soon("the lock", entering).await.unwrap().unwrap();
    assert!(!guard.is_valid() && next.is_valid());
    assert!(number(&next) > number(&guard));
    cluster.heal().unwrap();
    // Requests of the first client that are still under way change nothing.
    is_kept(&next, SHORT).await;
    assert!(two.check(&next.sequencer()).await.unwrap().is_current());
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn all_members_are_gone_for_half_a_lease() {
    let (cluster, one, guard) = restarted(LEASE, LEASE / 2).await;
    is_kept(&guard, LEASE * 3 / 2).await;
    assert!(one.check(&guard.sequencer()).await.unwrap().is_current());
    assert!(guard.release().await.unwrap().was_held());
    drop(cluster);
}

#[tokio::test]
async fn all_members_are_gone_for_two_leases() {
    let (cluster, _one, guard) = restarted(SHORT, SHORT * 2).await;
    assert!(!guard.is_valid());
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    let two = clinch(&cluster.url()).await;
    let next = soon("the lock", two.lock("a").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(number(&next) > number(&guard));
    assert!(!guard.is_valid() && next.is_valid());
}

/// Kills a cluster while a lock is held, and restarts it after `gone`.
async fn restarted(lease: Duration, gone: Duration) -> (EtcdCluster, clinch_core::Clinch, Guard) {
    let cluster = EtcdCluster::start().unwrap();
    let one = clinch(&with_short_timeout(&cluster)).await;
    let guard = one.lock("a").lease(lease).acquire().await.unwrap();
    let began = one.clock().now();
    for member in cluster.members() {
        member.kill().unwrap();
    }
    pass(gone.saturating_sub(one.clock().now().since(began))).await;
    // All at once: a single member would wait for a majority.
    for member in cluster.members() {
        member.process().restart().unwrap();
    }
    cluster.wait_ok().unwrap();
    (cluster, one, guard)
}

/// If the member of a waiter dies, its grant arrives through another member.
#[tokio::test]
async fn the_member_of_a_waiter_dies() {
    let cluster = EtcdCluster::start().unwrap();
    let (one, two) = (
        clinch(&cluster.url()).await,
        clinch(&with_short_timeout(&cluster)).await,
    );
    for dead in 0..3 {
        let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
        let lock = two.lock("a").lease(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until(&one, "a", 1, 1).await;
        cluster.members()[dead].kill().unwrap();
        guard.release().await.unwrap();
        let next = soon("the waiter", waiter).await.unwrap().unwrap();
        next.release().await.unwrap();
        cluster.members()[dead].start_again().unwrap();
        eventually("the cluster is whole", async || cluster.wait_ok().is_ok()).await;
    }
}
