//! Lock-delays: what operators see of them and how they end them, and that none is forgotten.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Evicted, LockView};
use clinch_testkit::servers::{Redis, Step};
use common::{Client, LONG};

const DELAY: Duration = Duration::from_secs(40);

/// A server, and a client that remembers idle names for a second.
async fn brief() -> (Redis, Client) {
    let server = Redis::with().clock_shim().start().unwrap();
    let client = Client::open(&format!("{}/?remember=1s", server.url())).await;
    (server, client.unwrap())
}

/// A claim whose hold ends with a delay.
fn delayed(client: &Client, name: &str, lease: Duration) -> Claim {
    Claim {
        lock_delay: DELAY,
        ..client.mutex(name, lease)
    }
}

async fn is_free(client: &Client, name: &str) -> bool {
    let claim = Claim {
        queue: false,
        ..client.mutex(name, LONG)
    };
    let reply = client.store.claim(&claim).await.unwrap();
    matches!(reply, ClaimReply::Granted(_))
}

fn numbers(view: &LockView) -> Vec<u64> {
    let tokens = view.delayed.iter().filter_map(|party| party.token);
    tokens.map(|token| token.seq()).collect()
}

/// The holder dies, and no client claims before its lease ends.
#[tokio::test]
async fn a_delay_outlives_a_short_memory() {
    for watched in [false, true] {
        let (server, client) = brief().await;
        let _events = match watched {
            true => Some(client.store.events("").await.unwrap()),
            false => None,
        };
        let lease = Duration::from_secs(5);
        client.granted(&delayed(&client, "a", lease)).await;
        // Renewed, and taken over from a queue.
        let first = client.mutex("b", LONG);
        let grant = client.granted(&first).await;
        client.queued(&delayed(&client, "b", lease)).await;
        let released = client.store.release(&common::hold(&first, &grant)).await;
        assert!(released.unwrap().was_held());
        let claim = delayed(&client, "c", lease);
        let grant = client.granted(&claim).await;
        let renewed = client.store.renew(&[common::renewal(&claim, &grant)]).await;
        renewed.unwrap();
        server.step_clock(DELAY / 2, Step::Forward).unwrap();
        for name in ["a", "b", "c"] {
            assert!(!is_free(&client, name).await, "{name}");
        }
        server.step_clock(DELAY, Step::Forward).unwrap();
        for name in ["a", "b", "c"] {
            assert!(is_free(&client, name).await, "{name}");
        }
    }
}

#[tokio::test]
async fn a_delay_is_shown_and_ended_by_its_number() {
    let (server, client) = brief().await;
    let claim = delayed(&client, "a", LONG);
    let seq = client.granted(&claim).await.seq;
    let evict = |seq| client.store.evict(&claim.name, seq);
    let broken = evict(Some(seq)).await.unwrap();
    assert_eq!((broken.seqs, broken.delays), (vec![seq], vec![]));
    let view = client.store.inspect(&claim.name).await.unwrap().unwrap();
    assert!(view.holders.is_empty() && view.waiters.is_empty());
    assert_eq!((numbers(&view), view.limit), (vec![seq], 1));
    assert!(
        view.delayed_for()
            .is_some_and(|left| left <= DELAY && left > DELAY / 2)
    );
    let listed = client.store.list("").await.unwrap();
    assert_eq!(listed.iter().map(numbers).collect::<Vec<_>>(), [[seq]]);
    assert_eq!(evict(Some(seq + 1)).await.unwrap(), Evicted::default());
    assert!(!is_free(&client, "a").await);
    let ended = evict(Some(seq)).await.unwrap();
    assert_eq!((ended.seqs, ended.delays), (vec![], vec![seq]));
    assert_eq!(client.store.inspect(&claim.name).await.unwrap(), None);
    assert!(is_free(&client, "a").await);
    // A late copy of that has no effect.
    assert_eq!(evict(Some(seq)).await.unwrap(), Evicted::default());
    drop(server);
}

/// Without a number: every hold, or the delays if there is no holder.
#[tokio::test]
async fn an_eviction_without_a_number_ends_delays_only_without_a_holder() {
    let (_server, client) = brief().await;
    let permit = |lock_delay| Claim {
        lock_delay,
        ..client.permit("a", 3, LONG)
    };
    let (one, two) = (permit(DELAY), permit(Duration::ZERO));
    let (first, second) = (
        client.granted(&one).await.seq,
        client.granted(&two).await.seq,
    );
    let evict = |seq| client.store.evict(&one.name, seq);
    assert_eq!(evict(Some(first)).await.unwrap().seqs, [first]);
    let holds = evict(None).await.unwrap();
    assert_eq!((holds.seqs, holds.delays), (vec![second], vec![]));
    let delays = evict(None).await.unwrap();
    assert_eq!((delays.seqs, delays.delays), (vec![], vec![first]));
    assert_eq!(evict(None).await.unwrap(), Evicted::default());
    assert_eq!(client.store.list("").await.unwrap(), []);
}
