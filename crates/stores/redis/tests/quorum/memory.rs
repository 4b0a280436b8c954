//! Servers that forget, and servers whose clock is moved.

use clinch_testkit::servers::Step;
use clinch_testkit::wait::eventually;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_empty_breaks_nothing() {
    let servers = Servers::start(5);
    let (a, b) = (servers.client().await, servers.client().await);
    let guard = a.lock("x").lease(SHORT).acquire().await.unwrap();
    servers.all_have("x", guard.token().seq()).await;
    servers.0[2].start_empty().unwrap();
    let tried = b.lock("x").lease(SHORT).try_acquire().await.unwrap();
    assert!(tried.is_none(), "four of five still know better");
    lives_for_three_leases(&a, &guard).await;
    // A renewal creates nothing at the one that forgot.
    let alone = client(&servers.0[2].url()).await;
    assert!(alone.inspect("x").await.unwrap().is_none());
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    let next = b.lock("x").lease(SHORT).acquire().await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
    servers.all_are_free("x").await;
}

/// A holds at servers 1, 2 and 3 only, because it cannot reach 4 and 5. Then 3 forgets.
async fn a_holds_and_one_forgets(
    servers: &Servers,
    parameters: &str,
    lease: Duration,
) -> (Clinch, Guard) {
    let proxies = proxies(servers).await;
    proxies[3].down();
    proxies[4].down();
    let a = client(&through(&proxies, parameters)).await;
    let guard = a.lock("x").lease(lease).acquire().await.unwrap();
    servers.0[2].start_empty().unwrap();
    // The proxies go with this function: A is cut off from now on.
    (a, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgetful_server_lets_two_holders_overlap_by_default() {
    let servers = Servers::start(5);
    let b = servers.client().await;
    let (_a, first) = a_holds_and_one_forgets(&servers, "", LONG).await;
    let second = b.lock("x").lease(LONG).acquire().await.unwrap();
    // The known hole of Redlock. Only the tokens show which is later.
    assert!(first.is_valid() && second.is_valid());
    assert!(second.token() > first.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_durability_closes_the_hole() {
    let strict = "durability=strict&longest=3s";
    let servers = Servers::start(5);
    let b = client(&servers.url(strict)).await;
    // New servers count as servers that forgot: they must have opened before A can cut them off.
    b.lock("y")
        .lease(SHORT)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    eventually("all servers grant", async || {
        let guard = b.lock("y").lease(SHORT).acquire().await.unwrap();
        let mut count = 0;
        for server in &servers.0 {
            let alone = client(&server.url()).await;
            count += alone.inspect("y").await.unwrap().into_iter().count();
        }
        guard.release().await.unwrap();
        count == 5
    })
    .await;
    let (_a, first) = a_holds_and_one_forgets(&servers, strict, SHORT * 2).await;
    let mut refused = 0;
    let second = loop {
        match b.lock("x").lease(SHORT).try_acquire().await.unwrap() {
            Some(guard) => break guard,
            None => refused += 1,
        }
    };
    assert!(!first.is_valid(), "both are valid");
    assert!(second.token() > first.token() && refused > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_one_server_is_stepped_both_ways() {
    let servers = Servers::with(5, Redis::with().clock_shim());
    let (a, b) = (servers.client().await, servers.client().await);
    let mut last = None;
    for step in [Step::Forward, Step::Back, Step::Back, Step::Forward] {
        let guard = a.lock("x").lease(SHORT).acquire().await.unwrap();
        assert!(Some(guard.token()) > last, "after {step:?}");
        last = Some(guard.token());
        servers.0[0].step_clock(SHORT * 10, step).unwrap();
        let tried = b.lock("x").lease(SHORT).try_acquire().await.unwrap();
        assert!(tried.is_none(), "{step:?} let another one in");
        lives_for_three_leases(&a, &guard).await;
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
        let next = b.lock("x").lease(SHORT).acquire().await.unwrap();
        assert!(Some(next.token()) > last, "after {step:?}");
        last = Some(next.token());
        next.release().await.unwrap();
    }
    servers.all_are_free("x").await;
}

/// The numbers come from the clock that is ahead. When its server is gone the others give greater ones, though
/// they remember idle names for a second only.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_when_the_server_whose_clock_is_ahead_is_gone() {
    let servers = Servers::with(3, Redis::with().clock_shim());
    let hour = Duration::from_secs(3600);
    servers.0[0].step_clock(hour, Step::Forward).unwrap();
    let url = servers.url("remember=1s");
    let a = client(&url).await;
    let mut last = None;
    for _ in 0..3 {
        let guard = a.lock("x").lease(LONG).acquire().await.unwrap();
        servers.all_have("x", guard.token().seq()).await;
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
    for server in &servers.0 {
        // It only looks: a claim would have the name remembered for as long as this client wants.
        let alone = client(&server.url()).await;
        eventually("a free lock", async || {
            alone.inspect("x").await.unwrap().is_none()
        })
        .await;
    }
    for server in &servers.0 {
        server
            .step_clock(Duration::from_secs(60), Step::Forward)
            .unwrap();
    }
    servers.0[0].kill().unwrap();
    let b = client(&url).await;
    let guard = b.lock("x").lease(LONG).acquire().await.unwrap();
    assert!(Some(guard.token()) > last);
    guard.release().await.unwrap();
}
