//! Servers that die, and servers that do not answer.

use clinch_core::store::{ClaimReply, RenewReply};
use clinch_core::{ErrorKind, Status};
use clinch_testkit::clients::{mutex, renewal};
use clinch_testkit::wait::soon;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_grants() {
    let servers = Servers::start(5);
    let (a, b) = (servers.client().await, servers.client().await);
    let guard = a.lock("x").lease(LONG).acquire().await.unwrap();
    // Those that answered late have the same number in the end, so that all of them count.
    servers.all_have("x", guard.token().seq()).await;
    let tried = b.lock("x").lease(LONG).try_acquire().await.unwrap();
    assert!(tried.is_none());
    assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_costs_three_commands_at_each_server() {
    let servers = Servers::start(5);
    let a = servers.client().await;
    let lock = a.lock("x").lease(LONG);
    lock.acquire().await.unwrap().release().await.unwrap(); // brings the script along
    let before = a.operations();
    for _ in 0..50 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let each = (a.operations() - before) / (50 * 5);
    // A claim, a vote and a release; and sometimes a message to a server that was late.
    assert!(each <= 4, "{each} commands at each server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_may_die() {
    let servers = Servers::start(5);
    let (a, b) = (servers.client().await, servers.client().await);
    let before = a.lock("before").lease(SHORT).acquire().await.unwrap();
    servers.0[0].kill().unwrap();
    servers.0[3].kill().unwrap();
    let after = b.lock("after").lease(SHORT).acquire().await.unwrap();
    assert!(
        a.lock("after")
            .lease(SHORT)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        b.lock("before")
            .lease(SHORT)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    lives_for_three_leases(&a, &before).await;
    assert!(after.is_valid());
    assert_eq!(before.release().await.unwrap(), ReleaseReply::Released);
    assert_eq!(after.release().await.unwrap(), ReleaseReply::Released);
    let late = servers.client().await; // who comes now finds enough of them
    let free = late.lock("before").lease(SHORT).acquire().await.unwrap();
    assert_eq!(free.release().await.unwrap(), ReleaseReply::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_majority_is_an_error_and_ends_holds() {
    let servers = Servers::start(5);
    let patience = Duration::from_millis(300);
    let a = client_with(&servers.url(""), |builder| builder.patience(patience)).await;
    let guard = a.lock("held").lease(SHORT).acquire().await.unwrap();
    for server in &servers.0[..3] {
        server.kill().unwrap();
    }
    let tried = a.lock("x").lease(SHORT).try_acquire().await;
    let error = tried.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("of 5 servers answer"), "{error}");
    assert_eq!(
        soon("the deadline", guard.lost()).await,
        LostReason::Unrenewed
    );
    assert_eq!(guard.status(), Status::Lost(LostReason::Unrenewed));
    let opened = open(&servers.url("")).await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_slows_nothing_down() {
    let timeout = Duration::from_secs(60);
    // A busy machine has to renew it in time.
    let lease = SHORT * 3;
    let servers = Servers::start(5);
    let a = client(&servers.url("timeout=60s")).await;
    servers.0[1].pause().unwrap();
    let start = a.clock().now();
    for _ in 0..20 {
        let guard = a.lock("x").lease(lease).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    }
    let late = client(&servers.url("timeout=60s")).await;
    let guard = late.lock("x").lease(lease).acquire().await.unwrap();
    lives_for(&late, &guard, lease * 3).await;
    assert!(a.inspect("x").await.unwrap().is_some());
    guard.release().await.unwrap();
    let took = a.clock().now().since(start);
    assert!(took < timeout / 2, "a client waited for it: {took:?}");
    // What was sent to it meanwhile is undone when it goes on.
    servers.0[1].resume().unwrap();
    servers.all_are_free("x").await;
}

/// One server is silent, and one of the others does not know one of the holds, of which nothing is certain then.
/// The rest of its batch is renewed all the same, in time for a short lease.
#[tokio::test(flavor = "multi_thread")]
async fn an_undecided_hold_costs_no_other_of_its_batch() {
    let timeout = Duration::from_secs(20);
    let lease = Duration::from_secs(6);
    let servers = Servers::start(3);
    let (store, context) = open(&servers.url("timeout=20s")).await.unwrap();
    let clock = clinch_core::Clock::boot();
    let mut renewals = Vec::new();
    for name in ["undecided", "a", "b"] {
        let claim = mutex(&context.identity, name, lease);
        let ClaimReply::Granted(grant) = store.claim(&claim).await.unwrap() else {
            panic!("{name} is free");
        };
        servers.all_have(name, grant.seq).await;
        renewals.push(renewal(&claim, &grant));
    }
    servers.0[0]
        .cli(&["DEL", "clinch:{clinch:undecided}"])
        .unwrap();
    servers.0[1].pause().unwrap();
    let start = clock.now();
    let replies = store.renew(&renewals).await.unwrap();
    let took = clock.now().since(start);
    let (unknown, held) = (RenewReply::Unknown, RenewReply::Held);
    assert_eq!(replies, [unknown, held, held]);
    assert!(took < timeout / 2, "the engine has given up: {took:?}");
    servers.0[1].resume().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_refused() {
    let servers = Servers::start(2);
    let (one, two) = (servers.0[0].port(), servers.0[1].port());
    let twice = format!("redis+quorum://127.0.0.1:{one},localhost:{one},127.0.0.1:{two}");
    let error = open(&twice).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the same server"), "{error}");
}
