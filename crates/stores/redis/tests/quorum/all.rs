//! Every server must agree.

use clinch_core::ErrorKind;

use clinch_testkit::wait::soon;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_one_stops_everything() {
    let servers = Servers::with(3, Redis::with().append_only("always"));
    let patience = Duration::from_millis(300);
    let url = servers.url("need=all");
    let a = client_with(&url, |builder| builder.patience(patience)).await;
    let guard = a.lock("x").lease(SHORT).acquire().await.unwrap();
    lives_for_three_leases(&a, &guard).await;
    servers.0[1].kill().unwrap();
    let tried = a.lock("y").lease(SHORT).try_acquire().await;
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::Unreachable);
    // The other two renew it, and that is not enough.
    assert_eq!(
        soon("the deadline", guard.lost()).await,
        LostReason::Unrenewed
    );
    servers.0[1].start_again().unwrap();
    let lock = a.lock("x").lease(SHORT);
    let next = loop {
        if let Ok(guard) = soon("after the restart", lock.acquire()).await {
            break guard;
        }
    };
    assert!(next.token() > guard.token());
    assert_eq!(next.release().await.unwrap(), ReleaseReply::Released);
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_forgets_ends_the_hold() {
    let servers = Servers::start(3);
    let a = client(&servers.url("need=all")).await;
    let guard = a.lock("x").lease(SHORT).acquire().await.unwrap();
    servers.0[2].start_empty().unwrap();
    // The next renewal detects it.
    assert_eq!(
        soon("the renewal", guard.lost()).await,
        LostReason::Forgotten
    );
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn semaphores_need_all() {
    let servers = Servers::start(3);
    let majority = servers.client().await;
    let refused = majority
        .semaphore("x", 2)
        .permits(1)
        .lease(LONG)
        .try_acquire()
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    let all = client(&servers.url("need=all")).await;
    let semaphore = all.semaphore("x", 2).permits(1).lease(LONG);
    let held = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    for guard in held {
        assert!(guard.release().await.unwrap().was_held());
    }
}
