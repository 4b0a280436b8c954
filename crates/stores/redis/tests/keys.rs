//! Keys: what there is while a lock is used, and that nothing outlives its use.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;

use std::time::Duration;

use clinch_core::store::ClaimReply;
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch, hold, renewal};

const SIDE: [&str; 4] = [":q", ":w", ":h", ":x"];

fn keys(server: &Redis) -> Vec<String> {
    let mut keys = server.command(&["KEYS", "*"]).unwrap().texts();
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
        assert!((1..=600_000).contains(&ttl(&server, &key)), "{key}");
    }
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
    eventually("all keys have ended", async || {
        server.cli(&["DBSIZE"]).unwrap() == "0"
    })
    .await;
}

#[tokio::test]
async fn all_keys_of_a_lock_share_its_slot_and_end() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    for name in ["s}:q", "{x}", "s"] {
        client.granted(&client.permit(name, 2, LONG)).await;
        client.granted(&client.permit(name, 2, LONG)).await;
        client.queued(&client.permit(name, 2, LONG)).await;
        client.queued(&client.permit(name, 2, LONG)).await;
        let state = format!("clinch:{{clinch:{name}}}");
        let slot = server.cli(&["CLUSTER", "KEYSLOT", &state]);
        for side in SIDE {
            let key = format!("{state}{side}");
            assert_eq!(server.cli(&["EXISTS", &key]).unwrap(), "1", "{key}");
            assert!(ttl(&server, &key) > ttl(&server, &state), "{key}");
            // A server that is no cluster does not know slots: then the tag is compared by eye.
            if let Ok(slot) = &slot {
                assert_eq!(&server.cli(&["CLUSTER", "KEYSLOT", &key]).unwrap(), slot);
            } else {
                let tag = |key: &str| {
                    key.split_once('{')
                        .unwrap()
                        .1
                        .split('}')
                        .next()
                        .unwrap()
                        .to_owned()
                };
                assert_eq!(tag(&key), tag(&state));
            }
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
    for side in [":q", ":w"] {
        let key = format!("clinch:{{clinch:a}}{side}");
        assert!(ttl(&server, &key) > 0, "{key} never ends");
    }
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
    eventually("all keys have ended", async || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn side_keys_that_are_deleted_do_not_wedge_the_lock() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    for (i, side) in SIDE.iter().enumerate() {
        let name = format!("n{i}");
        let claims: Vec<_> = (0..4).map(|_| client.permit(&name, 2, LONG)).collect();
        let (one, two) = (
            client.granted(&claims[0]).await,
            client.granted(&claims[1]).await,
        );
        client.queued(&claims[2]).await;
        client.queued(&claims[3]).await;
        let gone = server.cli(&["DEL", &format!("clinch:{{clinch:{name}}}{side}")]);
        assert_eq!(gone.unwrap(), "1");
        // Whoever was lost finds out or asks again; in the end each gets its turn.
        let renewals = [renewal(&claims[0], &one), renewal(&claims[1], &two)];
        client.store.renew(&renewals).await.unwrap();
        for (claim, grant) in [(&claims[0], &one), (&claims[1], &two)] {
            client.store.release(&hold(claim, grant)).await.unwrap();
        }
        for claim in &claims[2..] {
            let grant = client.granted(claim).await;
            assert!(grant.seq > two.seq);
        }
        for claim in &claims[2..] {
            client.store.withdraw(claim).await.unwrap();
        }
        assert_eq!(client.store.list(&name).await.unwrap(), []);
    }
    for key in keys(&server) {
        assert!(ttl(&server, &key) > 0, "{key} never ends");
    }
}

/// A queue that is told to wait again after its place was lost must have a place: one release is
/// enough to serve it.
#[tokio::test]
async fn a_waiter_whose_queue_was_deleted_gets_another_place() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let (held, waiting) = (client.mutex("a", LONG), client.mutex("a", LONG));
    let grant = client.granted(&held).await;
    client.queued(&waiting).await;
    server.cli(&["DEL", "clinch:{clinch:a}:q"]).unwrap();
    client.queued(&waiting).await;
    client.store.release(&hold(&held, &grant)).await.unwrap();
    let view = client.store.inspect(&held.name).await.unwrap().unwrap();
    assert_eq!(view.holders.len(), 1, "the release has granted it");
    client.granted(&waiting).await;
}

/// The state is gone, and the queue and the holders of the earlier life are still there.
#[tokio::test]
async fn side_keys_of_an_earlier_life_are_not_believed() {
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

/// Dead waiters leave a queue that lives longer than the state of their name.
#[tokio::test]
async fn a_dead_queue_that_outlives_its_state_is_not_believed() {
    let server = Redis::start().unwrap();
    let client = Client::open(&brief(&server)).await.unwrap();
    let lease = Duration::from_millis(200);
    client.granted(&client.mutex("a", lease)).await;
    client.queued(&client.mutex("a", lease)).await;
    client.queued(&client.mutex("a", lease)).await;
    eventually("the state has ended", async || {
        !keys(&server).contains(&"clinch:{clinch:a}".to_owned())
    })
    .await;
    assert_eq!(
        keys(&server),
        ["clinch:{clinch:a}:q", "clinch:{clinch:a}:w"]
    );
    let held = client.mutex("a", LONG);
    let grant = client.granted(&held).await;
    let next = client.mutex("a", LONG);
    client.queued(&next).await;
    client.store.release(&hold(&held, &grant)).await.unwrap();
    let view = client.store.inspect(&held.name).await.unwrap().unwrap();
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
    client.granted(&next).await;
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
