//! Replies that are lost, late or slow.

use clinch_testkit::proxy::{Direction, Flow, Then};
use clinch_testkit::servers::Step;
use clinch_testkit::wait::soon;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_are_repaired() {
    let servers = Servers::start(5);
    let proxies = proxies(&servers).await;
    let a = client(&through(&proxies, "timeout=300ms")).await;
    // The first reply is that of the claim, the second that of the vote, the third of the release.
    for (round, then) in [Then::Reset, Then::Hold, Then::Silence]
        .into_iter()
        .enumerate()
    {
        for lost in 1..=3 {
            for proxy in proxies.iter().skip(round).take(3) {
                // Of the present connection: the one after it is fine.
                proxy
                    .links()
                    .iter()
                    .for_each(|link| link.swallow(lost, then));
            }
            let lock = a.lock("x").lease(LONG);
            let guard = soon("the repaired claim", lock.acquire()).await.unwrap();
            assert!(guard.is_valid());
            let end = soon("the repaired release", guard.release()).await;
            assert_eq!(end.unwrap(), ReleaseReply::Released, "{then:?} {lost}");
            proxies.iter().for_each(Proxy::heal);
        }
    }
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_claim_has_the_same_token() {
    let servers = Servers::start(5);
    let (store, context) = open(&servers.url("")).await.unwrap();
    let claim = clinch_core::store::Claim {
        name: clinch_core::Name::new("x").unwrap(),
        request: context.identity.request(),
        owner: clinch_core::OwnerId::new("me"),
        client: context.identity.info().clone(),
        units: 1,
        limit: 1,
        lease: LONG,
        lock_delay: Duration::ZERO,
        label: None,
        value: None,
        queue: false,
    };
    let first = store.claim(&claim).await.unwrap();
    let clinch_core::store::ClaimReply::Granted(grant) = &first else {
        panic!("not granted: {first:?}");
    };
    servers.all_have("x", grant.seq).await;
    for server in &servers.0[..2] {
        assert_eq!(store.claim(&claim).await.unwrap(), first);
        server.kill().unwrap();
    }
    assert_eq!(store.claim(&claim).await.unwrap(), first);
    servers.0[2].start_empty().unwrap();
    // Two of the five have it. A new grant under the old number would be a lie.
    let again = store.claim(&claim).await;
    assert!(
        !matches!(again, Ok(clinch_core::store::ClaimReply::Granted(_))),
        "{again:?}"
    );
    store.withdraw(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_took_longer_than_its_lease_is_none() {
    let servers = Servers::start(5);
    let proxies = proxies(&servers).await;
    let a = client(&through(&proxies, "timeout=10s")).await;
    let lease = Duration::from_millis(300);
    for proxy in &proxies {
        proxy.flow(Direction::Down, Flow::Delay(lease * 2));
    }
    let tried = soon("the end", a.lock("x").lease(lease).try_acquire()).await;
    assert!(!matches!(tried, Ok(Some(_))), "it is over already");
    proxies.iter().for_each(Proxy::heal);
    let lock = a.lock("x").lease(lease);
    let guard = soon("a grant in time", lock.acquire()).await.unwrap();
    assert!(guard.is_valid() && guard.remaining() <= lease);
    guard.release().await.unwrap();
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimant_that_dies_before_the_vote_is_not_waited_for() {
    let servers = Servers::start(5);
    let proxies = proxies(&servers).await;
    let dead = client(&through(&proxies, "timeout=500ms")).await;
    // All servers get its claim, and no reply reaches it.
    for proxy in &proxies {
        proxy.flow(Direction::Down, Flow::Blackhole);
    }
    let lock = dead.lock("x").lease(LONG);
    let lost = tokio::spawn(async move { lock.try_acquire().await });
    let b = servers.client().await;
    clinch_testkit::wait::eventually("the halves", async || {
        let tried = b.lock("x").lease(LONG).try_acquire().await.unwrap();
        tried.is_none()
    })
    .await;
    proxies.iter().for_each(Proxy::down);
    // Much sooner than its lease.
    let lock = b.lock("x").lease(LONG);
    assert!(soon("the next", lock.acquire()).await.unwrap().is_valid());
    assert!(lost.await.unwrap().is_err());
}

/// A prepare reaches one server after the lock was released and used by others. Nothing is taken there.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepare_that_arrives_late_takes_nothing() {
    for much_later in [false, true] {
        let servers = Servers::with(3, Redis::with().clock_shim());
        let proxies = proxies(&servers).await;
        let a = client(&through(&proxies, "timeout=500ms")).await;
        a.lock("warm")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        servers.all_are_free("warm").await;
        let old = proxies[0].links().pop().unwrap();
        old.flow(Direction::Up, Flow::Hold);
        let guard = a.lock("x").lease(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
        // The client sends the end to that server in the background, on another connection.
        let (server, key) = (&servers.0[0], "clinch:{clinch:x}");
        eventually("the server knows of the end", async || {
            server.cli(&["EXISTS", key]).unwrap() == "1"
        })
        .await;
        if much_later {
            server.step_clock(LONG * 10, Step::Forward).unwrap();
        }
        let alone = client(&server.url()).await;
        for _ in 0..10 {
            let lock = alone.lock("x").lease(LONG);
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        let before = calls(server);
        old.flow(Direction::Up, Flow::Pass);
        eventually("the late prepare has arrived", async || {
            calls(server) > before
        })
        .await;
        let tried = alone.lock("x").lease(LONG).try_acquire().await.unwrap();
        let guard = tried.unwrap_or_else(|| panic!("taken, {much_later}"));
        guard.release().await.unwrap();
    }
}
