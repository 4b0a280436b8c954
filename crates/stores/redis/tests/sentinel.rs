//! Sentinel: failovers of every kind, replicas that must have what counts, sentinels that fail.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its tasks are its own"
)]

mod common;

use std::time::Duration;

use clinch_core::{Clinch, ErrorKind, LostReason, ReleaseReply, Status};
use clinch_testkit::servers::{Redis, Sentinels};
use clinch_testkit::wait::{eventually, soon};
use common::{client, connections};

/// Longer than any failover; no test waits for its end.
const LONG: Duration = Duration::from_secs(120);

/// How many claims hold and wait for a name.
async fn parties(by: &Clinch, name: &str) -> Option<(usize, usize)> {
    let view = by.inspect(name).await.ok()?;
    Some(view.map_or((0, 0), |view| (view.holders.len(), view.waiters.len())))
}

async fn until(by: &Clinch, name: &str, wanted: (usize, usize)) {
    let what = format!("{wanted:?} holders and waiters of {name}");
    eventually(&what, async || parties(by, name).await == Some(wanted)).await;
}

/// A hold, a waiter and new claims over a change of master, none of them restarted.
async fn follows(all: &Sentinels, options: &str, change: impl FnOnce()) {
    let url = format!("{}?wait=2{options}", all.url());
    let (a, b, c) = (client(&url).await, client(&url).await, client(&url).await);
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    let lease = Duration::from_secs(30);
    let held = a.lock("x").lease(lease).acquire().await.unwrap();
    let before = held.token();
    let waiting = b.lock("x").lease(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    until(&c, "x", (1, 1)).await;
    let old = all.master().unwrap().port();

    change();
    assert_ne!(all.master().unwrap().port(), old);

    // New claims find the new master, which knows the hold and the waiter.
    let other = soon(
        "a grant of the new master",
        c.lock("y").lease(LONG).acquire(),
    )
    .await;
    other.unwrap().release().await.unwrap();
    assert!(c.lock("x").try_acquire().await.unwrap().is_none());
    until(&c, "x", (1, 1)).await;
    // The hold is renewed there, and stays.
    eventually("a renewal", async || held.remaining() > lease * 9 / 10).await;
    assert!(held.is_valid() && !waiting.is_finished());
    assert_eq!(held.release().await.unwrap(), ReleaseReply::Released);
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    assert!(next.token() > before);
    assert_eq!(next.predecessor().unwrap().seq, before.seq());
    next.release().await.unwrap();
    assert!(c.list("").await.unwrap().is_empty());
    for client in [a, b, c] {
        client.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_master_is_followed() {
    let all = Sentinels::start().unwrap();
    follows(&all, "", || {
        let old = all.master().unwrap().port();
        all.kill_master().unwrap();
        all.wait_for_new_master(old).unwrap();
        // Two replicas must have what follows.
        let index = all.servers().iter().position(|s| s.port() == old).unwrap();
        all.start_again(index).unwrap();
        all.wait_synced().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_hand_is_followed() {
    let all = Sentinels::start().unwrap();
    follows(&all, "", || {
        all.failover().unwrap();
        all.wait_synced().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_and_comes_back_is_left_behind() {
    let all = Sentinels::start().unwrap();
    follows(&all, "", || {
        let old = all.master().unwrap();
        old.pause().unwrap();
        all.wait_for_new_master(old.port()).unwrap();
        old.resume().unwrap();
        all.wait_synced().unwrap();
    })
    .await;
}

/// The timeout is far longer than the test waits: only the message of a sentinel ends the requests
/// that the old master holds, although the first sentinel is dead.
#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_for_a_master_that_hangs() {
    let all = Sentinels::start().unwrap();
    let a = client(&format!("{}?timeout=120s&wait=1", all.url()))
        .await
        .unwrap();
    // Whichever sentinel it listens to: another takes its place.
    let listened = || all.sentinels().iter().filter(|s| s.is_running());
    eventually("a watcher", async || {
        listened().map(connections).sum::<usize>() == 1
    })
    .await;
    let first = listened().find(|s| connections(s) == 1).unwrap();
    first.kill().unwrap();
    eventually("another one", async || {
        listened().map(connections).sum::<usize>() == 1
    })
    .await;

    let old = all.master().unwrap_or_else(|e| panic!("{e}"));
    old.pause().unwrap();
    let claim = a.lock("x").lease(LONG);
    let claim = tokio::spawn(async move { claim.acquire().await });
    all.wait_for_new_master(old.port()).unwrap();
    let guard = soon("a grant of the new master", claim)
        .await
        .unwrap()
        .unwrap();
    guard.release().await.unwrap();
}

/// Kills the replicas, lets `grant` run on the master alone, and has an empty replica take over.
async fn missed<T>(all: &Sentinels, grant: impl AsyncFnOnce() -> T) -> T {
    let old = all.master().unwrap().port();
    let replicas = || all.servers().iter().filter(|s| s.port() != old);
    replicas().for_each(|s| s.kill().unwrap());
    let granted = grant().await;
    all.kill_master().unwrap();
    replicas().for_each(|s| s.start_again().unwrap());
    all.wait_for_new_master(old).unwrap();
    granted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_the_new_master_does_not_know_is_lost_and_said_so() {
    let all = Sentinels::start().unwrap();
    let url = format!("{}?wait=0", all.url());
    let (a, b) = (client(&url).await.unwrap(), client(&url).await.unwrap());
    let lost = missed(&all, async || {
        a.lock("x")
            .lease(Duration::from_secs(60))
            .acquire()
            .await
            .unwrap()
    });
    let lost = lost.await;
    // A new client knows no token of before.
    let c = client(&url).await.unwrap();
    let next = soon("the next", c.lock("x").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(
        next.token() > lost.token(),
        "the failover lowered the token"
    );
    let waiting = b.lock("x").lease(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    until(&c, "x", (1, 1)).await;
    assert_eq!(soon("the loss", lost.lost()).await, LostReason::Forgotten);
    assert!(!lost.is_valid());
    assert_eq!(
        lost.release().await.unwrap(),
        ReleaseReply::WasLost(LostReason::Forgotten)
    );
    assert!(next.is_valid() && !waiting.is_finished());
    next.release().await.unwrap();
    soon("the waiter", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    eventually("nothing is left", async || {
        c.list("").await.unwrap().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_the_new_master_does_not_know_waits_on() {
    let all = Sentinels::start().unwrap();
    let url = format!("{}?wait=0", all.url());
    let (a, b) = (client(&url).await.unwrap(), client(&url).await.unwrap());
    let waiting = missed(&all, async || {
        let held = a.lock("x").lease(LONG).acquire().await.unwrap();
        let waiting = b.lock("x").lease(LONG);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        until(&a, "x", (1, 1)).await;
        drop(held.sequencer());
        (held, waiting)
    });
    let (held, waiting) = waiting.await;
    let next = soon("the waiter's turn", waiting).await.unwrap().unwrap();
    assert!(next.token() > held.token());
}

/// Replicas that stand still acknowledge nothing.
fn stop_replicas(all: &Sentinels) -> Vec<&Redis> {
    let master = all.master().unwrap().port();
    let replicas = all.servers().iter().filter(|s| s.port() != master);
    replicas.inspect(|s| s.pause().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_too_few_replicas_have_is_not_granted() {
    let all = Sentinels::start().unwrap();
    let url = format!("{}?timeout=1s", all.url());
    let (a, b) = (client(&url).await.unwrap(), client(&url).await.unwrap());
    let held = a.lock("held").lease(LONG).acquire().await.unwrap();
    let short = a
        .lock("short")
        .lease(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap();
    let waiting = b.lock("held").lease(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    until(&a, "held", (1, 1)).await;
    let stopped = stop_replicas(&all);

    let error = b.lock("free").lease(LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.may_have_taken_effect());
    assert!(
        error.message().contains("0 of 1 replicas have it"),
        "{error}"
    );
    eventually("it is withdrawn", async || {
        parties(&a, "free").await == Some((0, 0))
    })
    .await;
    // A clear answer stays one.
    assert!(b.lock("short").try_acquire().await.unwrap().is_none());
    // A renewal that no replica has does not count either.
    eventually("the loss", async || {
        short.status() == Status::Lost(LostReason::Unrenewed)
    })
    .await;
    // A release needs no replica, and hands nothing over that none has.
    assert_eq!(held.release().await.unwrap(), ReleaseReply::Released);
    until(&a, "held", (1, 0)).await;
    let error = a.lock("free").lease(LONG).try_acquire().await.unwrap_err();
    assert!(error.message().contains("replicas"), "{error}");
    assert!(!waiting.is_finished());
    let careless = client(&format!("{}?wait=0", all.url())).await.unwrap();
    assert!(
        careless
            .lock("careless")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );

    stopped.iter().for_each(|s| s.resume().unwrap());
    let next = soon("the waiter's turn", waiting).await.unwrap();
    assert!(next.unwrap().is_valid());
    assert!(
        soon("a grant", a.lock("free").acquire())
            .await
            .unwrap()
            .is_valid()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_replicas_fails_no_other_step() {
    let all = Sentinels::start().unwrap();
    let url = format!("{}?timeout=2s", all.url());
    let a = client(&url).await.unwrap();
    let held = a.lock("held").lease(LONG).acquire().await.unwrap();
    let stopped = stop_replicas(&all);
    let claims: Vec<_> = (0..8)
        .map(|n| {
            let lock = a.lock(format!("free/{n}")).lease(LONG);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    until(&a, "held", (1, 0)).await;
    assert_eq!(held.release().await.unwrap(), ReleaseReply::Released);
    for claim in claims {
        let error = claim.await.unwrap().unwrap_err();
        assert!(
            error.message().contains("0 of 1 replicas have it"),
            "{error}"
        );
    }
    assert_eq!(connections(all.master().unwrap()), 1, "it was given up");
    eventually("all are withdrawn", async || {
        a.list("free/").await.is_ok_and(|left| left.is_empty())
    })
    .await;
    stopped.iter().for_each(|s| s.resume().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_client() {
    let all = Sentinels::start().unwrap();
    let count = || {
        let servers = all.sentinels().iter().chain(all.servers());
        servers.map(connections).sum::<usize>()
    };
    let (closed, dropped) = (client(&all.url()).await, client(&all.url()).await);
    let (closed, dropped) = (closed.unwrap(), dropped.unwrap());
    // One to the master and one to a sentinel, each.
    eventually("four connections", async || count() == 4).await;
    closed.close().await.unwrap();
    eventually("two are gone", async || count() == 2).await;
    drop(dropped);
    eventually("all are gone", async || count() == 0).await;
    drop(closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_silent_sentinels_are_passed_over() {
    let all = Sentinels::start().unwrap();
    let [dead, silent, _] = all.sentinels() else {
        panic!("there are three")
    };
    dead.kill().unwrap();
    silent.pause().unwrap();
    let a = client(&format!("{}?timeout=6s", all.url())).await.unwrap();
    assert!(a.lock("x").try_acquire().await.unwrap().is_some());
    eventually("the third is listened to", async || {
        connections(&all.sentinels()[2]) == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_names_and_absent_sentinels_are_named() {
    let all = Sentinels::start().unwrap();
    let url = all.url();
    let (hosts, name) = url.rsplit_once('/').unwrap();
    let error = client(&format!("{hosts}/nope")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.contains("\"nope\"") && text.contains(&format!("they have {name}")),
        "{text}"
    );
    for sentinel in all.sentinels() {
        sentinel.kill().unwrap();
    }
    let error = client(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    for sentinel in all.sentinels() {
        let address = format!("127.0.0.1:{}", sentinel.port());
        assert!(error.to_string().contains(&address), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_have_a_login_of_their_own() {
    let all = Sentinels::start().unwrap();
    for sentinel in all.sentinels() {
        let user = [
            "ACL", "SETUSER", "clinch", "on", ">secret", "~*", "&*", "+@all",
        ];
        sentinel.cli(&user).unwrap();
    }
    let url = format!("{}?sentinel_user=clinch&sentinel_password=", all.url());
    let a = client(&format!("{url}secret")).await.unwrap();
    assert!(a.lock("x").try_acquire().await.unwrap().is_some());
    let listed = |s: &Redis| s.cli(&["CLIENT", "LIST"]).unwrap().contains("user=clinch");
    eventually("a watcher", async || all.sentinels().iter().any(listed)).await;
    let error = client(&format!("{url}wrong")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(
        error.advice().unwrap().contains("sentinel_password"),
        "{error}"
    );
    assert!(!error.to_string().contains("wrong"), "{error}");
}

/// A sentinel that is cut off names the master of before; the others have a newer configuration.
#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_sentinel_is_ignored() {
    let all = Sentinels::start().unwrap();
    all.failover().unwrap();
    all.wait_synced().unwrap();
    let other = Redis::start().unwrap();
    let monitor = format!("{} 127.0.0.1 {} 1", all.name(), other.port());
    let behind = Redis::with()
        .sentinel()
        .config("sentinel monitor", &monitor);
    let behind = behind.start().unwrap();
    let ports: Vec<_> = all.sentinels().iter().map(Redis::port).collect();
    let url = format!(
        "redis+sentinel://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/{}",
        behind.port(),
        ports[0],
        ports[1],
        all.name()
    );
    let a = client(&url).await.unwrap();
    let _held = a.lock("x").lease(LONG).acquire().await.unwrap();
    assert_eq!(other.cli(&["DBSIZE"]).unwrap(), "0");
    assert_eq!(connections(all.master().unwrap()), 1);
    let listened = || all.sentinels().iter().map(connections).sum::<usize>();
    eventually("a watcher", async || {
        listened() == 1 && connections(&behind) == 0
    })
    .await;
}

/// The connection stays open; the first refusal ends it, so that the master is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_is_noticed() {
    let (one, other) = (Redis::start().unwrap(), Redis::start().unwrap());
    let a = client(&one.url()).await.unwrap();
    let port = other.port().to_string();
    one.cli(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    for limit in [1, 2] {
        let error = a.semaphore("x", limit).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("is a replica of"), "{error}");
        one.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let granted = a.semaphore("x", limit).try_acquire().await.unwrap();
        granted.unwrap().release().await.unwrap();
        one.cli(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    }
}

/// Sentinel and server have authorities of their own here; the client trusts both.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_by_tls() {
    let master = Redis::with().tls().start().unwrap();
    let monitor = format!("secure 127.0.0.1 {} 1", master.port());
    let sentinel = Redis::with()
        .sentinel()
        .tls()
        .config("tls-replication", "yes");
    let sentinel = sentinel
        .config("sentinel monitor", &monitor)
        .start()
        .unwrap();
    let trusted: String = [&master, &sentinel]
        .map(|server| std::fs::read_to_string(server.ca_file().unwrap()).unwrap())
        .concat();
    let file = master.folder().join("trusted.pem");
    std::fs::write(&file, trusted).unwrap();
    let url = format!(
        "redis+sentinel://127.0.0.1:{}/secure?wait=0",
        sentinel.port()
    );
    let a = client(&format!("{url}&tls=yes&ca={}", file.display()))
        .await
        .unwrap();
    assert!(a.lock("x").try_acquire().await.unwrap().is_some());
    assert_eq!(
        client(&url).await.unwrap_err().kind(),
        ErrorKind::Unreachable
    );
}
