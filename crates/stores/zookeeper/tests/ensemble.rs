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
        // The rest of the ensemble serves, whoever leads it.
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

/// A server that is stopped answers nobody, and its clients go elsewhere. Alone in the URL it is
/// unreachable, and says so in bounded time.
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

/// Everything is gone for half of a lease: nothing is lost. For two session times: the guard is
/// lost at its deadline, and after the return somebody else enters, with a higher token.
#[tokio::test]
async fn all_servers_gone_for_half_and_for_two_session_times() {
    let ensemble = Ensemble::start().unwrap();
    let (one, two) = (clinch(&url(&ensemble)).await, clinch(&url(&ensemble)).await);
    let lease = Duration::from_secs(12);
    let guard = one.lock("a").lease(lease).acquire().await.unwrap();
    let gone = |span: Duration| {
        let ensemble = &ensemble;
        async move {
            for server in ensemble.servers() {
                server.kill().unwrap();
            }
            Clock::boot().sleep(span).await;
            for server in ensemble.servers() {
                server.restart().unwrap();
            }
        }
    };
    gone(lease / 4).await;
    ensemble.wait_serving().unwrap();
    eventually("it was renewed", async || {
        assert!(guard.is_valid(), "it was lost");
        guard.remaining() > lease * 3 / 5
    })
    .await;
    // 16.4 seconds is the session of a lease of 12; the guard goes much sooner.
    let watching = async {
        let reason = soon("the loss", guard.lost()).await;
        assert!(!guard.is_valid());
        reason
    };
    let (_, ()) = tokio::join!(watching, gone(lease * 2));
    ensemble.wait_serving().unwrap();
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
