//! Servers of an ensemble are killed and stopped.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::ReleaseReply;
use clinch_core::{Clock, ErrorKind};
use clinch_testkit::servers::Ensemble;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, number};

fn url(ensemble: &Ensemble) -> String {
    format!("{}/faults?tick=200ms", ensemble.url())
}

/// The server that a client's sessions are connected to, alone in the URL, and the others after it.
fn at_first(ensemble: &Ensemble, server: usize) -> String {
    let port = ensemble.servers()[server].port();
    format!("zookeeper://127.0.0.1:{port}/faults?tick=200ms")
}

/// Holds survive the loss of the leader: the new one counts every session anew.
#[tokio::test]
async fn a_killed_leader_costs_no_hold() {
    let ensemble = Ensemble::start().unwrap();
    let (one, two) = (clinch(&url(&ensemble)).await, clinch(&url(&ensemble)).await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    let old = ensemble.leader().unwrap();
    ensemble.servers()[old].kill().unwrap();
    ensemble.wait_serving().unwrap();
    assert!(guard.is_valid());
    assert!(!waiter.is_finished(), "two hold it");
    let first = number(&guard);
    assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    let next = soon("the waiter", waiter).await.unwrap().unwrap();
    assert!(
        number(&next) > first,
        "tokens rise over a change of the leader"
    );
    next.release().await.unwrap();
    ensemble.servers()[old].start_again().unwrap();
    let again = one.lock("a").lease(LONG).acquire().await.unwrap();
    assert!(number(&again) > first);
}

/// The servers that the clients are connected to go one after another, killed and stopped.
#[tokio::test]
async fn whichever_server_goes_holds_stay() {
    let ensemble = Ensemble::start().unwrap();
    let (one, two) = (clinch(&url(&ensemble)).await, clinch(&url(&ensemble)).await);
    let lease = Duration::from_secs(8);
    let guard = one.lock("a").lease(lease).acquire().await.unwrap();
    for (round, server) in ensemble.servers().iter().enumerate() {
        match round % 2 {
            0 => server.kill().unwrap(),
            _ => server.pause().unwrap(),
        }
        let name = format!("b{round}");
        // The rest of the ensemble serves, whichever server leads it.
        let other = two.lock(&name).lease(lease);
        let held = soon("another lock", async {
            loop {
                match other.acquire().await {
                    Ok(guard) => return guard,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        })
        .await;
        assert!(guard.is_valid(), "it was lost in round {round}");
        assert!(
            two.lock("a")
                .lease(lease)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        held.release().await.unwrap();
        match round % 2 {
            0 => server.start_again().unwrap(),
            _ => server.resume().unwrap(),
        }
        eventually("all three are there", async || {
            ensemble
                .servers()
                .iter()
                .all(|server| server.mode().is_some())
        })
        .await;
    }
    assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
}

/// The clients of a stopped server connect to another one. Alone in the URL, it is reported as unreachable
/// in bounded time.
#[tokio::test]
async fn a_stopped_server_alone_is_unreachable() {
    let ensemble = Ensemble::start().unwrap();
    let follower = ensemble.follower().unwrap();
    let alone = Client::at(&format!("{}&timeout=1s", at_first(&ensemble, follower))).await;
    let others = clinch(&url(&ensemble)).await;
    let claim = alone.mutex("a", LONG);
    alone.granted(&claim).await;
    ensemble.servers()[follower].pause().unwrap();
    let error = soon("the error", alone.store.claim(&claim))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.may_have_taken_effect(), "{error}");
    assert!(others.lock("a").try_acquire().await.unwrap().is_none());
    ensemble.servers()[follower].resume().unwrap();
    soon("an answer", async {
        while alone.store.claim(&claim).await.is_err() {}
    })
    .await;
    alone.store.withdraw(&claim).await.unwrap();
}

/// Kills all servers and starts them again after `span`.
async fn all_gone(ensemble: &Ensemble, span: Duration) {
    for server in ensemble.servers() {
        server.kill().unwrap();
    }
    Clock::boot().sleep(span).await;
    for server in ensemble.servers() {
        server.restart().unwrap();
    }
    ensemble.wait_serving().unwrap();
}

/// The session of a lease, with this ensemble's tick.
fn session(lease: Duration) -> Duration {
    lease + lease / 4 + Duration::from_millis(200)
}

/// No hold is lost: the client is back soon after the servers are.
#[tokio::test]
async fn all_servers_gone_for_half_a_session_cost_no_hold() {
    let ensemble = Ensemble::start().unwrap();
    let (one, two) = (clinch(&url(&ensemble)).await, clinch(&url(&ensemble)).await);
    let guards = [
        one.lock("a").lease(LONG).acquire().await.unwrap(),
        one.lock("b").lease(LONG).acquire().await.unwrap(),
    ];
    // Starting them takes the rest of the half.
    all_gone(&ensemble, session(LONG) / 3).await;
    for guard in &guards {
        eventually("it was renewed", async || {
            assert!(guard.is_valid(), "it was lost");
            guard.remaining() > LONG * 3 / 4
        })
        .await;
    }
    for guard in guards {
        let tried = soon("an answer", async {
            loop {
                match two.lock(guard.name()).lease(LONG).try_acquire().await {
                    Ok(tried) => return tried,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        })
        .await;
        assert!(tried.is_none(), "both hold it");
        let end = soon("the release", guard.release()).await.unwrap();
        assert_eq!(end, ReleaseReply::Released);
    }
}

/// The guard is lost at its deadline. After the outage another client is granted, with a higher token.
#[tokio::test]
async fn all_servers_gone_for_two_sessions_end_the_hold_on_time() {
    let ensemble = Ensemble::start().unwrap();
    let (one, two) = (clinch(&url(&ensemble)).await, clinch(&url(&ensemble)).await);
    let lease = Duration::from_secs(4);
    let guard = one.lock("a").lease(lease).acquire().await.unwrap();
    let other = one.lock("b").lease(lease).acquire().await.unwrap();
    let watching = async {
        soon("both losses", async {
            tokio::join!(guard.lost(), other.lost())
        })
        .await;
        // Whatever the servers reply later.
        assert!(!guard.is_valid() && !other.is_valid());
    };
    tokio::join!(watching, all_gone(&ensemble, session(lease) * 2));
    let next = soon("the next", async {
        loop {
            match two.lock("a").lease(lease).acquire().await {
                Ok(next) => return next,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    })
    .await;
    assert!(next.is_valid() && !guard.is_valid());
    assert!(number(&next) > number(&guard));
}
