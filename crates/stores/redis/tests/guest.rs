//! Guests in the locks of other libraries, under faults. What the others do is done here by the
//! commands that they send; `scripts/interop` runs the libraries themselves.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Admin, Claim, ClaimReply, Hold, Renewal};
use clinch_core::{Clinch, Clock, ErrorKind, LostReason, Name, OwnerId, ReleaseReply};
use clinch_testkit::proxy::{Direction, Flow, Proxy, Then};
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};

const LAYOUTS: [&str; 2] = ["plain", "redisson"];
/// A lease that never ends within a test.
const LONG: Duration = Duration::from_secs(120);
/// A holder of Redisson's.
const JAVA: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
/// A holder of redis-py's.
const PYTHON: &str = "6a204bd89f3c11efb1f50242ac110002";

async fn connect(url: &str) -> Clinch {
    let context = Clinch::context("clinch").unwrap();
    let store = clinch_redis::open(&url.parse().unwrap(), context.clone())
        .await
        .unwrap();
    Clinch::builder(store, context).build()
}

fn direct(server: &Redis, layout: &str) -> String {
    format!("{}?layout={layout}", server.url())
}

async fn proxied(server: &Redis) -> Proxy {
    Proxy::before(server).await.unwrap()
}

/// The URL through a proxy; replies are given up soon.
fn through(proxy: &Proxy, layout: &str) -> String {
    format!("redis://{}/?layout={layout}&timeout=300ms", proxy.addr())
}

/// Somebody else takes a lock, in the layout's own way.
fn foreign_lock(server: &Redis, layout: &str, name: &str, lease: &str) {
    match layout {
        "plain" => drop(
            server
                .cli(&["SET", name, PYTHON, "NX", "PX", lease])
                .unwrap(),
        ),
        _ => {
            server.cli(&["HSET", name, JAVA, "1"]).unwrap();
            server.cli(&["PEXPIRE", name, lease]).unwrap();
        }
    }
}

/// Somebody else gives it up.
fn foreign_unlock(server: &Redis, layout: &str, name: &str) {
    server.cli(&["DEL", name]).unwrap();
    if layout == "redisson" {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        server.cli(&["PUBLISH", &channel, "0"]).unwrap();
    }
}

fn exists(server: &Redis, name: &str) -> bool {
    server.cli(&["EXISTS", name]).unwrap().trim() == "1"
}

/// Calls of scripts so far.
fn calls(server: &Redis) -> u64 {
    let stats = server.info("commandstats").unwrap();
    let line = stats.get("cmdstat_evalsha").cloned().unwrap_or_default();
    let calls = line
        .strip_prefix("calls=")
        .and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// A claim and its store, below the engine.
async fn raw(url: &str, name: &str) -> (Arc<dyn Admin>, Claim) {
    let context = Clinch::context("clinch").unwrap();
    let store = clinch_redis::open(&url.parse().unwrap(), context.clone())
        .await
        .unwrap();
    let claim = Claim {
        name: Name::new(name).unwrap(),
        request: context.identity.request(),
        owner: OwnerId::new("me"),
        client: context.identity.info().clone(),
        units: 1,
        limit: 1,
        lease: LONG,
        lock_delay: Duration::ZERO,
        label: None,
        value: None,
        queue: false,
    };
    (store, claim)
}

#[tokio::test]
async fn the_key_is_the_name_whatever_the_namespace() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let context = Clinch::context("another").unwrap();
        let url = direct(&server, layout).parse().unwrap();
        let store = clinch_redis::open(&url, context.clone()).await.unwrap();
        let a = Clinch::builder(store, context).build();
        let guard = a.lock("jobs:nightly").lease(LONG).acquire().await.unwrap();
        let kind = server.cli(&["TYPE", "jobs:nightly"]).unwrap();
        let expected = if layout == "plain" { "string" } else { "hash" };
        assert_eq!(kind.trim(), expected);
        let ends: u64 = server
            .cli(&["PTTL", "jobs:nightly"])
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(ends <= 120_000 && ends > 60_000, "{ends}");
        guard.release().await.unwrap();
        assert!(!exists(&server, "jobs:nightly"));
    }
}

#[tokio::test]
async fn lost_replies_of_claim_and_release_are_repaired() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        for then in [Then::Reset, Then::Silence] {
            let proxy = proxied(&server).await;
            let a = connect(&through(&proxy, layout)).await;
            // The script is at the server already, so that the next reply is the claim's.
            a.lock("warm")
                .lease(LONG)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            proxy.links()[0].swallow(1, then);
            let lock = a.lock("x").lease(LONG);
            let guard = soon("the claim", lock.acquire()).await.unwrap();
            assert!(guard.is_valid() && exists(&server, "x"));
            if layout == "redisson" {
                let counts = server.cli(&["HVALS", "x"]).unwrap();
                assert_eq!(counts.trim(), "1", "a repeated claim entered twice");
            }
            let last = proxy.links().len() - 1;
            proxy.links()[last].swallow(1, then);
            let end = soon("the release", guard.release()).await.unwrap();
            assert_eq!(end, ReleaseReply::Released, "{layout} {then:?}");
            assert!(!exists(&server, "x"));
            a.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_lost_reply_of_a_try_is_never_a_no() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let proxy = proxied(&server).await;
        let a = connect(&through(&proxy, layout)).await;
        a.lock("warm")
            .lease(LONG)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        proxy.links()[0].swallow(1, Then::Reset);
        let guard = soon("the try", a.lock("x").lease(LONG).try_acquire()).await;
        guard.unwrap().expect("it is ours").release().await.unwrap();
    }
}

#[tokio::test]
async fn a_hold_lives_through_lost_renewals_and_resets() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let proxy = proxied(&server).await;
        let a = connect(&through(&proxy, layout)).await;
        let lease = Duration::from_secs(3);
        let guard = a.lock("x").lease(lease).acquire().await.unwrap();
        proxy.links()[0].swallow(1, Then::Silence);
        let (clock, start) = (Clock::boot(), Clock::boot().now());
        let mut reset = false;
        eventually("two leases", async || {
            assert!(guard.is_valid(), "{layout}: lost");
            let spent = clock.now().since(start);
            if !reset && spent > lease {
                proxy.reset();
                reset = true;
            }
            spent > lease * 2
        })
        .await;
        assert!(proxy.links().len() > 2, "nothing went wrong");
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    }
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_is_refused() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let proxy = proxied(&server).await;
        let (late, claim) = raw(&through(&proxy, layout), "x").await;
        let (prompt, _) = raw(&direct(&server, layout), "x").await;
        // The script is at the server already.
        let other = clinch_core::Identity::new().request();
        let unused = Claim {
            request: other,
            ..claim.clone()
        };
        late.withdraw(&unused).await.unwrap();
        let before = calls(&server);
        proxy.flow(Direction::Up, Flow::Hold);
        let error = late.claim(&claim).await.unwrap_err();
        assert!(error.may_have_taken_effect(), "{error}");
        // Another connection of the same process says that it is not wanted any more.
        prompt.withdraw(&claim).await.unwrap();
        proxy.flow(Direction::Up, Flow::Pass);
        let reply = prompt.claim(&claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Gone(_)), "{reply:?}");
        eventually("the late claim", async || calls(&server) == before + 3).await;
        assert!(!exists(&server, "x"), "{layout}: a late claim took it");
    }
}

#[tokio::test]
async fn a_deleted_key_is_a_lost_lock() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let a = connect(&direct(&server, layout)).await;
        let lock = a.lock("x").lease(Duration::from_secs(2));
        let guard = lock.acquire().await.unwrap();
        server.cli(&["DEL", "x"]).unwrap();
        let reason = soon("the loss", guard.lost()).await;
        assert_eq!(reason, LostReason::Forgotten, "{layout}");
        // Somebody else comes, and is left alone by what follows.
        foreign_lock(&server, layout, "x", "60000");
        let end = guard.release().await.unwrap();
        assert_eq!(end, ReleaseReply::WasLost(LostReason::Forgotten));
        assert!(exists(&server, "x"));
        server.cli(&["DEL", "x"]).unwrap();
    }
}

#[tokio::test]
async fn a_foreign_lock_is_never_touched() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        foreign_lock(&server, layout, "x", "60000");
        let (store, claim) = raw(&direct(&server, layout), "x").await;
        let reply = store.claim(&claim).await.unwrap();
        let ClaimReply::Busy(busy) = reply else {
            panic!("{reply:?}")
        };
        assert!(busy.retry_after.unwrap() <= Duration::from_secs(60));
        // Even the right number of another client's hold is not enough.
        let (granted, free) = raw(&direct(&server, layout), "free").await;
        let ClaimReply::Granted(grant) = granted.claim(&free).await.unwrap() else {
            panic!("it is free")
        };
        let hold = Hold {
            name: claim.name.clone(),
            request: free.request,
            seq: grant.seq,
        };
        let end = granted.release(&hold).await.unwrap();
        assert_eq!(end, ReleaseReply::WasLost(LostReason::Forgotten));
        let renewal = Renewal {
            hold,
            lease: LONG * 10,
            value: None,
        };
        granted.renew(&[renewal]).await.unwrap();
        store.withdraw(&claim).await.unwrap();
        granted.withdraw(&free).await.unwrap();
        let ends: u64 = server.cli(&["PTTL", "x"]).unwrap().trim().parse().unwrap();
        assert!(ends > 0 && ends <= 60_000, "{layout}: {ends}");
        server.cli(&["DEL", "x"]).unwrap();
    }
}

#[tokio::test]
async fn a_foreign_release_lets_the_waiter_in() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        foreign_lock(&server, layout, "x", "3600000");
        let a = connect(&direct(&server, layout)).await;
        let lock = a.lock("x").lease(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        if layout == "redisson" {
            eventually("it listens", async || {
                !server
                    .cli(&["PUBSUB", "CHANNELS"])
                    .unwrap()
                    .trim()
                    .is_empty()
            })
            .await;
        }
        foreign_unlock(&server, layout, "x");
        soon("the waiter", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
        eventually("it listens no more", async || {
            server
                .cli(&["PUBSUB", "CHANNELS"])
                .unwrap()
                .trim()
                .is_empty()
        })
        .await;
    }
}

/// With a poll of two seconds, fifty turns by polling would take a minute and a half.
#[tokio::test]
async fn redissons_channel_is_what_wakes_a_waiter() {
    let server = Redis::start().unwrap();
    let a = connect(&direct(&server, "redisson")).await;
    let clock = Clock::boot();
    let start = clock.now();
    for _ in 0..50 {
        foreign_lock(&server, "redisson", "x", "3600000");
        let lock = a.lock("x").lease(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        eventually("it listens", async || {
            !server
                .cli(&["PUBSUB", "CHANNELS"])
                .unwrap()
                .trim()
                .is_empty()
        })
        .await;
        // It looks once more when it has begun to listen; only then a message is needed.
        foreign_unlock(&server, "redisson", "x");
        soon("the waiter", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let took = clock.now().since(start);
    assert!(took < Duration::from_secs(45), "50 wakes took {took:?}");
}

#[tokio::test]
async fn a_waiter_listens_again_after_a_reset() {
    let server = Redis::start().unwrap();
    foreign_lock(&server, "redisson", "x", "3600000");
    let proxy = proxied(&server).await;
    let a = connect(&through(&proxy, "redisson")).await;
    let lock = a.lock("x").lease(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    let listens = async || {
        !server
            .cli(&["PUBSUB", "CHANNELS"])
            .unwrap()
            .trim()
            .is_empty()
    };
    eventually("it listens", listens).await;
    proxy.reset();
    eventually("the old one has gone", async || proxy.links().len() > 1).await;
    eventually("it listens again", listens).await;
    foreign_unlock(&server, "redisson", "x");
    let guard = soon("the waiter", waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn our_release_is_published() {
    let server = Redis::start().unwrap();
    let a = connect(&direct(&server, "redisson")).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut ear = client.get_async_pubsub().await.unwrap();
    ear.subscribe("redisson_lock__channel:{x}").await.unwrap();
    let mut messages = ear.into_on_message();
    for evicted in [false, true] {
        let guard = a.lock("x").lease(LONG).acquire().await.unwrap();
        match evicted {
            true => assert_eq!(a.evict("x", None).await.unwrap().seqs.len(), 1),
            false => assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released),
        }
        let next = std::future::poll_fn(|cx| {
            futures_core::Stream::poll_next(std::pin::Pin::new(&mut messages), cx)
        });
        let message = soon("the message", next).await.unwrap();
        assert_eq!(message.get_payload::<String>().unwrap(), "0");
    }
}

#[tokio::test]
async fn a_foreign_expiry_lets_us_in() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        foreign_lock(&server, layout, "x", "700");
        let a = connect(&direct(&server, layout)).await;
        assert!(
            a.lock("x")
                .lease(LONG)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        let lock = a.lock("x").lease(LONG);
        let guard = soon("the end of its lease", lock.acquire()).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn show_tells_what_is_known_of_a_foreign_holder() {
    let server = Redis::start().unwrap();
    let a = connect(&direct(&server, "plain")).await;
    server.cli(&["SET", "x", PYTHON]).unwrap();
    let view = a.inspect("x").await.unwrap().unwrap();
    let holder = &view.holders[0];
    assert_eq!((view.limit, holder.owner.as_str()), (1, PYTHON));
    assert_eq!(
        holder.lease_left,
        Duration::MAX,
        "without a TTL it is held for ever"
    );
    assert_eq!(
        (holder.host.as_str(), holder.pid, holder.token),
        ("", 0, None)
    );
    let guard = a.lock("mine").lease(LONG).acquire().await.unwrap();
    let view = a.inspect("mine").await.unwrap().unwrap();
    assert_eq!(view.holders[0].pid, std::process::id());
    assert_eq!(view.holders[0].client, a.client_id());
    assert!(view.holders[0].lease_left <= LONG);
    guard.release().await.unwrap();
    server.cli(&["DEL", "x"]).unwrap();

    let a = connect(&direct(&server, "redisson")).await;
    server.cli(&["HSET", "x", JAVA, "3"]).unwrap();
    server.cli(&["PEXPIRE", "x", "30000"]).unwrap();
    let view = a.inspect("x").await.unwrap().unwrap();
    assert_eq!(view.holders[0].owner.as_str(), JAVA);
    assert_eq!(view.holders[0].label.as_deref(), Some("entered 3 times"));
    assert!(view.holders[0].lease_left <= Duration::from_secs(30));
}

#[tokio::test]
async fn a_foreign_holder_can_be_evicted() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        foreign_lock(&server, layout, "x", "3600000");
        let a = connect(&direct(&server, layout)).await;
        assert_eq!(a.evict("x", None).await.unwrap().seqs.len(), 1);
        let guard = a.lock("x").lease(LONG).try_acquire().await.unwrap();
        guard.expect("it is free").release().await.unwrap();
    }
}

#[tokio::test]
async fn another_layout_at_the_key_is_named() {
    let server = Redis::start().unwrap();
    let plain = connect(&direct(&server, "plain")).await;
    let redisson = connect(&direct(&server, "redisson")).await;
    foreign_lock(&server, "plain", "string", "60000");
    foreign_lock(&server, "redisson", "hash", "60000");
    server
        .cli(&["HSET", "rw", "mode", "read", JAVA, "1"])
        .unwrap();
    server.cli(&["RPUSH", "list", "a"]).unwrap();
    server
        .cli(&["RPUSH", "redisson_lock_queue:{fair}", JAVA])
        .unwrap();
    for (client, name, says) in [
        (&plain, "hash", "layout=redisson"),
        (&redisson, "string", "layout=plain"),
        (&redisson, "rw", "read-write lock"),
        (&redisson, "fair", "fair lock"),
        (&plain, "list", "no lock at all"),
        (&redisson, "list", "no lock at all"),
    ] {
        let before = server.dump_keys("*").unwrap();
        let lock = client.lock(name).lease(LONG);
        let mut errors = vec![
            lock.try_acquire().await.unwrap_err(),
            soon("the error", lock.acquire()).await.unwrap_err(),
        ];
        if name != "fair" {
            errors.push(client.inspect(name).await.unwrap_err());
            errors.push(client.evict(name, None).await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let said = format!("{error}; {}", error.advice().unwrap());
            assert!(said.contains(says), "{said}");
        }
        let after = server.dump_keys("*").unwrap();
        let locks = |keys: &std::collections::BTreeMap<String, String>| -> Vec<_> {
            let own = |key: &&String| !key.starts_with("clinch:ended:");
            keys.keys().filter(own).cloned().collect()
        };
        assert_eq!(locks(&after), locks(&before), "something was changed");
    }
}

/// Our key was taken away and something else put there: that is a loss, not an error.
#[tokio::test]
async fn a_key_of_another_kind_is_a_lost_lock() {
    let server = Redis::start().unwrap();
    for layout in LAYOUTS {
        let a = connect(&direct(&server, layout)).await;
        let lock = a.lock("x").lease(Duration::from_secs(2));
        let guard = lock.acquire().await.unwrap();
        server.cli(&["DEL", "x"]).unwrap();
        server.cli(&["RPUSH", "x", "a"]).unwrap();
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::Forgotten);
        guard.release().await.unwrap();
        assert!(exists(&server, "x"));
        server.cli(&["DEL", "x"]).unwrap();
    }
}

#[tokio::test]
async fn what_a_guest_cannot_be_is_refused_when_it_is_opened() {
    for (url, says) in [
        ("redis+cluster://127.0.0.1:1/?layout=plain", "one server"),
        (
            "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/?layout=redisson",
            "one server",
        ),
        (
            "redis://127.0.0.1:1/?layout=plain&durability=strict",
            "strict",
        ),
    ] {
        let context = Clinch::context("clinch").unwrap();
        let error = clinch_redis::open(&url.parse().unwrap(), context)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.advice().is_some());
    }
}

/// The first copy of a claim arrives when its hold was released, and many others have used the lock.
#[tokio::test]
async fn a_claim_that_arrives_after_other_holders_takes_nothing() {
    for (layout, much_later) in LAYOUTS
        .iter()
        .flat_map(|layout| [(layout, false), (layout, true)])
    {
        let server = Redis::with().clock_shim().start().unwrap();
        let proxy = proxied(&server).await;
        let (store, claim) = raw(&through(&proxy, layout), "a").await;
        let (other, _) = raw(&direct(&server, layout), "a").await;
        let use_once = async |store: &Arc<dyn Admin>, claim: &Claim| {
            let ClaimReply::Granted(grant) = store.claim(claim).await.unwrap() else {
                panic!("it is free");
            };
            let hold = Hold {
                name: claim.name.clone(),
                request: claim.request,
                seq: grant.seq,
            };
            assert!(store.release(&hold).await.unwrap().was_held());
        };
        let identity = clinch_core::Identity::new();
        let another = || Claim {
            request: identity.request(),
            ..claim.clone()
        };
        use_once(&store, &another()).await;
        let old = proxy.links().pop().unwrap();
        old.flow(Direction::Up, Flow::Hold);
        assert!(
            store
                .claim(&claim)
                .await
                .unwrap_err()
                .may_have_taken_effect()
        );
        use_once(&store, &claim).await;
        if much_later {
            let hour = Duration::from_secs(3600);
            server
                .step_clock(hour, clinch_testkit::servers::Step::Forward)
                .unwrap();
        }
        // More than are remembered in any case.
        for _ in 0..40 {
            use_once(&other, &another()).await;
        }
        let before = calls(&server);
        old.flow(Direction::Up, Flow::Pass);
        eventually("the late copy has arrived", async || {
            calls(&server) > before
        })
        .await;
        assert!(!exists(&server, "a"), "{layout} {much_later}");
    }
}

/// The same if the hold was evicted: it is not released, and its client has not noticed yet.
#[tokio::test]
async fn the_first_copy_of_an_evicted_claim_takes_nothing() {
    for layout in LAYOUTS {
        let server = Redis::start().unwrap();
        let proxy = proxied(&server).await;
        let (store, claim) = raw(&through(&proxy, layout), "a").await;
        let (other, _) = raw(&direct(&server, layout), "a").await;
        let identity = clinch_core::Identity::new();
        let old = proxy.links().pop().unwrap();
        old.flow(Direction::Up, Flow::Hold);
        let lost = store.claim(&claim).await.unwrap_err();
        assert!(lost.may_have_taken_effect());
        let reply = store.claim(&claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Granted(_)), "{reply:?}");
        // Each of the others is evicted as well, so that more have ended than are remembered in any case.
        for _ in 0..40 {
            assert_eq!(other.evict(&claim.name, None).await.unwrap().seqs.len(), 1);
            let next = Claim {
                request: identity.request(),
                ..claim.clone()
            };
            let reply = other.claim(&next).await.unwrap();
            assert!(matches!(reply, ClaimReply::Granted(_)), "{reply:?}");
        }
        other.evict(&claim.name, None).await.unwrap();
        let before = calls(&server);
        old.flow(Direction::Up, Flow::Pass);
        eventually("the late copy has arrived", async || {
            calls(&server) > before
        })
        .await;
        assert!(!exists(&server, "a"), "{layout}");
    }
}
