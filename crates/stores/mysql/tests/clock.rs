//! The server's clock is stepped by ten leases, forward and back: while a lock is held, waited for
//! and idle.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, RenewReply};
use clinch_core::{Clock, LostReason};
use clinch_testkit::servers::{MariaDb, Step};
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, number, renewal};

const LEASE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_secs(20);

fn server() -> MariaDb {
    MariaDb::with().clock_shim().start().unwrap()
}

/// Asks until it is granted; says how long that took.
async fn wait_for(client: &Client, claim: &Claim) -> Duration {
    let (clock, began) = (Clock::boot(), Clock::boot().now());
    eventually("the grant", async || {
        matches!(
            client.store.claim(claim).await.unwrap(),
            ClaimReply::Granted(_)
        )
    })
    .await;
    clock.now().since(began)
}

#[tokio::test]
async fn idle_names_give_rising_tokens_over_both_steps() {
    let server = server();
    let (one, other) = (Client::at(&server).await, Client::at(&server).await);
    let mut last = 0;
    for step in [Step::Forward, Step::Back, Step::Back, Step::Forward] {
        for client in [&one, &other] {
            let claim = client.mutex("a", LEASE);
            let grant = client.granted(&claim).await;
            assert!(grant.seq > last, "{} after {last}", grant.seq);
            last = grant.seq;
            client.store.release(&hold(&claim, &grant)).await.unwrap();
        }
        server.step_clock(STEP, step).unwrap();
    }
}

#[tokio::test]
async fn back_a_dead_holder_blocks_for_one_lease_not_for_ten() {
    let server = server();
    let client = Client::at(&server).await;
    let dead = client.mutex("a", LEASE);
    client.granted(&dead).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let took = wait_for(&client, &client.mutex("a", LEASE)).await;
    assert!(took < STEP / 2, "{took:?}");
}

/// One sharer lives and renews; another has died, and its units come back all the same.
#[tokio::test]
async fn back_a_dead_sharer_blocks_for_one_lease_behind_a_living_one() {
    let server = server();
    let client = Client::at(&server).await;
    let living = client.permit("s", 2, LEASE);
    let grant = client.granted(&living).await;
    client.granted(&client.permit("s", 2, LEASE)).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let (next, clock) = (client.permit("s", 2, LEASE), Clock::boot());
    let began = clock.now();
    eventually("the grant", async || {
        let held = client
            .store
            .renew(&[renewal(&living, &grant)])
            .await
            .unwrap();
        assert_eq!(held, [RenewReply::Held]);
        matches!(
            client.store.claim(&next).await.unwrap(),
            ClaimReply::Granted(_)
        )
    })
    .await;
    let took = clock.now().since(began);
    assert!(took < STEP / 2, "{took:?}");
}

/// A sharer with a long lease does not hide that of a dead one from the step.
#[tokio::test]
async fn back_short_leases_end_beside_long_ones() {
    let server = server();
    let client = Client::at(&server).await;
    // It has less left than the other, and still no more than its whole lease after the step.
    client.granted(&client.permit("s", 2, STEP * 2)).await;
    server
        .step_clock(STEP * 2 - LEASE / 2, Step::Forward)
        .unwrap();
    client.granted(&client.permit("s", 2, LEASE)).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let took = wait_for(&client, &client.permit("s", 2, LEASE)).await;
    assert!(took < STEP / 2, "{took:?}");
}

#[tokio::test]
async fn back_dead_waiters_go_after_one_lease() {
    let server = server();
    let client = Client::at(&server).await;
    let held = client.mutex("a", LONG);
    client.granted(&held).await;
    for _ in 0..3 {
        client.queued(&client.mutex("a", LEASE)).await;
    }
    server.step_clock(STEP, Step::Back).unwrap();
    let (clock, living) = (Clock::boot(), client.mutex("a", LONG));
    let began = clock.now();
    eventually("the dead have gone", async || {
        client.queued(&living).await;
        let view = client.store.inspect(&held.name).await.unwrap().unwrap();
        view.waiters.len() == 1
    })
    .await;
    let took = clock.now().since(began);
    assert!(took < STEP / 2, "{took:?}");
}

#[tokio::test]
async fn back_a_lock_delay_lasts_no_longer_than_it_is() {
    let server = server();
    let client = Client::at(&server).await;
    for limit in [1, 2] {
        let claim = Claim {
            units: limit,
            lock_delay: LEASE,
            ..client.permit(&format!("d{limit}"), limit, LONG)
        };
        client.granted(&claim).await;
        client.store.evict(&claim.name, None).await.unwrap();
        server.step_clock(STEP, Step::Back).unwrap();
        let next = Claim {
            request: client.identity.request(),
            ..claim.clone()
        };
        let took = wait_for(&client, &next).await;
        assert!(took < STEP / 2, "{took:?}");
    }
}

#[tokio::test]
async fn back_a_living_holder_keeps_its_lock_and_waiters_their_places() {
    let server = server();
    let (one, two) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let lock = two.lock("a").lease(LEASE);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    server.step_clock(STEP, Step::Back).unwrap();
    let lost = soon("three leases", async {
        tokio::select! {
            reason = guard.lost() => Some(reason),
            () = one.clock().sleep(LEASE * 3) => None,
        }
    });
    assert_eq!(lost.await, None);
    assert!(guard.is_valid() && !waiting.is_finished());
    let token = number(&guard);
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > token);
}

#[tokio::test]
async fn forward_the_holder_is_told_and_tokens_stay_in_order() {
    let server = server();
    let (one, two) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let lock = two.lock("a").lease(LEASE);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    server.step_clock(STEP, Step::Forward).unwrap();
    assert_eq!(soon("the word", guard.lost()).await, LostReason::Expired);
    assert!(!guard.is_valid());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > number(&guard));
}

#[tokio::test]
async fn forward_a_sharer_is_told_at_its_next_renewal() {
    let server = server();
    let client = Client::at(&server).await;
    let claim = client.permit("s", 2, LEASE);
    let grant = client.granted(&claim).await;
    server.step_clock(STEP, Step::Forward).unwrap();
    let replies = client
        .store
        .renew(&[renewal(&claim, &grant)])
        .await
        .unwrap();
    assert_eq!(replies, [RenewReply::Lost(LostReason::Expired)]);
}

#[tokio::test]
async fn a_clock_before_2020_is_named() {
    let server = server();
    let client = Client::at(&server).await;
    let years = Duration::from_secs(40 * 365 * 86_400);
    server.step_clock(years, Step::Back).unwrap();
    let error = client
        .store
        .claim(&client.mutex("a", LEASE))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("before 2020"), "{error}");
    assert!(!error.may_have_taken_effect());
}
