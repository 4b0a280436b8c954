//! Keys: what there is while a lock is used, and that nothing outlives its use.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::ClaimReply;
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, renewal};

/// The key of the highest number, which stays.
const HIGHEST: &str = "clinch:{clinch:}highest";

/// All keys but that one.
fn keys(server: &Redis) -> Vec<String> {
    let mut keys = server.command(&["KEYS", "*"]).unwrap().texts();
    keys.retain(|key| key != HIGHEST);
    keys.sort();
    keys
}

fn ttl(server: &Redis, key: &str) -> i64 {
    server.cli(&["PTTL", key]).unwrap().parse().unwrap()
}

fn brief(server: &Redis) -> String {
    format!("{}/?remember=1s", server.url())
}

#[tokio::test]
async fn after_use_one_key_is_left_and_it_ends() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let claims = [client.mutex("a", LONG), client.permit("b", 3, LONG)];
    for claim in claims {
        let grant = client.granted(&claim).await;
        let next = client.mutex(claim.name.as_str(), LONG);
        if claim.limit == 1 {
            client.queued(&next).await;
            client.store.withdraw(&next).await.unwrap();
        }
        let reply = client.store.release(&hold(&claim, &grant)).await.unwrap();
        assert!(reply.was_held());
    }
    assert_eq!(keys(&server), ["clinch:{clinch:a}", "clinch:{clinch:b}"]);
    for key in keys(&server) {
        assert!((1..=900_000).contains(&ttl(&server, &key)), "{key}");
    }
    assert_eq!(ttl(&server, HIGHEST), -1);
}

#[tokio::test]
async fn ten_thousand_names_used_once_leave_nothing() {
    let server = Redis::start().unwrap();
    let clinch = clinch(&brief(&server)).await;
    let mut tasks = Vec::new();
    for part in 0..100 {
        let clinch = clinch.clone();
        tasks.push(async move {
            for i in 0..100 {
                let lock = clinch.lock(format!("n/{part}/{i}"));
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    let tasks: Vec<_> = tasks.into_iter().map(tokio::task::spawn).collect();
    for task in tasks {
        soon("a hundred names", task).await.unwrap();
    }
    eventually("all keys but one have ended", async || {
        server.cli(&["DBSIZE"]).unwrap() == "1"
    })
    .await;
}

/// Whatever there is of a lock is in one key, so no part can be lost or moved without the others.
#[tokio::test]
async fn a_lock_is_one_key_that_ends() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    for name in ["s}:q", "{x}", "s"] {
        for limit in [1, 2] {
            let name = format!("{name}{limit}");
            for _ in 0..limit {
                client.granted(&client.permit(&name, limit, LONG)).await;
            }
            client.queued(&client.permit(&name, limit, LONG)).await;
            client.queued(&client.permit(&name, limit, LONG)).await;
            let state = format!("clinch:{{clinch:{name}}}");
            assert_eq!(keys(&server), [state.as_str()]);
            assert!(ttl(&server, &state) > 0, "{state} never ends");
            server.cli(&["FLUSHALL"]).unwrap();
        }
    }
}

#[tokio::test]
async fn a_queue_of_five_hundred_is_served_in_order_and_leaves_nothing() {
    let server = Redis::start().unwrap();
    let client = Client::open(&brief(&server)).await.unwrap();
    let first = client.mutex("a", LONG);
    let mut holding = (first.clone(), client.granted(&first).await);
    let mut waiting = Vec::new();
    for _ in 0..500 {
        let claim = client.mutex("a", LONG);
        client.queued(&claim).await;
        waiting.push(claim);
    }
    assert!(ttl(&server, "clinch:{clinch:a}") > 0);
    for claim in waiting {
        let (before, grant) = &holding;
        client.store.release(&hold(before, grant)).await.unwrap();
        let next = client.granted(&claim).await;
        assert!(next.seq > grant.seq);
        assert_eq!(next.predecessor.as_ref().unwrap().seq, grant.seq);
        holding = (claim, next);
    }
    client
        .store
        .release(&hold(&holding.0, &holding.1))
        .await
        .unwrap();
    eventually("all keys but one have ended", async || {
        keys(&server).is_empty()
    })
    .await;
}

/// As by eviction: its holder learns of it, and no earlier claim is granted.
#[tokio::test]
async fn a_lock_whose_key_was_deleted_begins_anew() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    for limit in [1, 2] {
        let name = format!("n{limit}");
        let claim = || client.permit(&name, limit, LONG);
        let mut old = Vec::new();
        for _ in 0..limit {
            let claim = claim();
            old.push((claim.clone(), client.granted(&claim).await));
        }
        let ghosts = [claim(), claim()];
        for ghost in &ghosts {
            client.queued(ghost).await;
        }
        server
            .cli(&["DEL", &format!("clinch:{{clinch:{name}}}")])
            .unwrap();
        // A new life: as many holders as there is room for, then one waiter.
        let mut holding = Vec::new();
        for _ in 0..limit {
            let claim = claim();
            let grant = client.granted(&claim).await;
            assert!(grant.seq > old[0].1.seq);
            holding.push((claim, grant));
        }
        let next = claim();
        client.queued(&next).await;
        let view = client.store.inspect(&next.name).await.unwrap().unwrap();
        assert_eq!(view.holders.len(), limit as usize);
        assert_eq!(view.waiters.len(), 1, "the ghosts are not in the queue");
        for (claim, grant) in &old {
            let lost = client.store.renew(&[renewal(claim, grant)]).await.unwrap();
            assert!(format!("{lost:?}").contains("Forgotten"), "{lost:?}");
        }
        // A release serves the waiter, not a ghost.
        let (claim, grant) = &holding[0];
        client.store.release(&hold(claim, grant)).await.unwrap();
        let reply = client.store.claim(&next).await.unwrap();
        assert!(matches!(reply, ClaimReply::Granted(_)), "{reply:?}");
        client.store.withdraw(&next).await.unwrap();
        for (claim, grant) in &holding[1..] {
            client.store.release(&hold(claim, grant)).await.unwrap();
        }
        assert_eq!(client.store.list(&name).await.unwrap(), []);
    }
}

/// Nobody comes back for a lock whose holder and waiters have died.
#[tokio::test]
async fn dead_holders_and_waiters_leave_nothing() {
    let server = Redis::start().unwrap();
    let client = Client::open(&brief(&server)).await.unwrap();
    let lease = Duration::from_millis(200);
    for limit in [1, 2] {
        let claim = || client.permit(&format!("n{limit}"), limit, lease);
        for _ in 0..limit {
            client.granted(&claim()).await;
        }
        client.queued(&claim()).await;
        client.queued(&claim()).await;
    }
    eventually("all keys but one have ended", async || {
        keys(&server).is_empty()
    })
    .await;
}

/// Something else writes over one lock: the others are renewed all the same.
#[tokio::test]
async fn a_key_that_is_overwritten_takes_no_other_lock_with_it() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let claims = [client.mutex("a", LONG), client.mutex("b", LONG)];
    let mut renewals = Vec::new();
    for claim in &claims {
        renewals.push(renewal(claim, &client.granted(claim).await));
    }
    server.cli(&["DEL", "clinch:{clinch:a}"]).unwrap();
    server.cli(&["LPUSH", "clinch:{clinch:a}", "x"]).unwrap();
    let replies = client.store.renew(&renewals).await.unwrap();
    assert_eq!(format!("{replies:?}"), "[Lost(Forgotten), Held]");
    let error = client
        .store
        .claim(&client.mutex("a", LONG))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), clinch_core::ErrorKind::Corrupt);
    assert!(error.to_string().contains("another namespace"), "{error}");
}

/// Full memory stops new locks, and no lock that is held.
#[tokio::test]
async fn without_memory_holds_are_still_renewed_and_released() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let (mutex, permit) = (client.mutex("a", LONG), client.permit("s", 3, LONG));
    let renewals = [
        renewal(&mutex, &client.granted(&mutex).await),
        renewal(&permit, &client.granted(&permit).await),
    ];
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = client
        .store
        .claim(&client.mutex("b", LONG))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert!(!error.may_have_taken_effect());
    for _ in 0..3 {
        let replies = client.store.renew(&renewals).await.unwrap();
        assert_eq!(format!("{replies:?}"), "[Held, Held]");
    }
    for renewal in &renewals {
        assert!(
            client
                .store
                .release(&renewal.hold)
                .await
                .unwrap()
                .was_held()
        );
    }
    assert_eq!(client.store.list("").await.unwrap(), []);
}
