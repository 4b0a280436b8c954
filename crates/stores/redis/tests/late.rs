//! A claim that arrives late never takes the lock, after any number of other holders.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Events, LostReason, RenewReply};
use clinch_testkit::proxy::{Direction, Flow, Link, Proxy, Then};
use clinch_testkit::servers::{Redis, Step};
use clinch_testkit::wait::eventually;
use common::{Client, LONG, calls, hold, holders, proxy, renewal};

/// More than any claim may be late by.
const LATER: Duration = Duration::from_secs(3600);
/// More than a name remembers.
const OTHERS: usize = 10;

/// The URL through a proxy. Replies are waited for long enough on a busy machine.
fn behind(proxy: &Proxy, more: &str) -> String {
    format!("redis://{}/?timeout=1500ms{more}", proxy.addr())
}

/// A client behind a proxy, and another one that is not.
struct World {
    server: Redis,
    proxy: Proxy,
    client: Client,
    other: Client,
    /// The connection whose requests are held back.
    old: Link,
    /// With a watcher the script uses the slow path only.
    _events: Option<Events>,
}

impl World {
    async fn new(watched: bool) -> Self {
        let server = Redis::with().clock_shim().start().unwrap();
        let proxy = proxy(&server).await;
        let client = Client::open(&behind(&proxy, "")).await.unwrap();
        client.warm_up("warm", LONG).await;
        let other = Client::at(&server).await;
        let events = match watched {
            true => Some(other.store.events("").await.unwrap()),
            false => None,
        };
        Self {
            old: proxy.links().pop().unwrap(),
            server,
            proxy,
            client,
            other,
            _events: events,
        }
    }

    /// The claim is sent and does not arrive: it has no reply.
    async fn hold_back(&self, claim: &Claim) {
        self.old.flow(Direction::Up, Flow::Hold);
        let error = self.client.store.claim(claim).await.unwrap_err();
        assert!(error.may_have_taken_effect(), "{error}");
    }

    async fn others_use_it(&self) {
        for _ in 0..OTHERS {
            self.other.warm_up("a", LONG).await;
        }
    }

    /// The claim arrives, and takes nothing.
    async fn deliver(&self) {
        let before = calls(&self.server);
        self.old.flow(Direction::Up, Flow::Pass);
        eventually("the late copy has arrived", async || {
            calls(&self.server) > before
        })
        .await;
        assert_eq!(holders(&self.server, "a").await, 0);
        assert!(self.other.store.list("").await.unwrap().is_empty());
    }
}

/// The claim is repeated, granted and released; others use the lock; then the first copy arrives.
#[tokio::test]
async fn a_claim_that_arrives_after_other_holders_takes_nothing() {
    for (watched, much_later) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new(watched).await;
        let claim = world.client.mutex("a", LONG);
        world.hold_back(&claim).await;
        let grant = world.client.granted(&claim).await;
        let released = world.client.store.release(&hold(&claim, &grant)).await;
        assert!(released.unwrap().was_held());
        if much_later {
            // What was to be kept for a time is kept no more.
            world.server.step_clock(LATER, Step::Forward).unwrap();
        }
        world.others_use_it().await;
        world.deliver().await;
    }
}

/// The same where the request was withdrawn, before or after it was seen.
#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_and_other_holders_takes_nothing() {
    for (seen, watched) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::new(watched).await;
        let claim = world.client.mutex("a", LONG);
        world.hold_back(&claim).await;
        if seen {
            world.client.granted(&claim).await;
        }
        world.client.store.withdraw(&claim).await.unwrap();
        world.others_use_it().await;
        world.deliver().await;
    }
}

/// A try that is repeated and refused, because the lock is taken: its first copy arrives when it is free.
#[tokio::test]
async fn the_first_copy_of_a_try_that_was_refused_takes_nothing() {
    for much_later in [false, true] {
        let world = World::new(false).await;
        let held = world.other.mutex("a", LONG);
        let grant = world.other.granted(&held).await;
        let claim = Claim {
            queue: false,
            ..world.client.mutex("a", LONG)
        };
        world.hold_back(&claim).await;
        let reply = world.client.store.claim(&claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Busy(_)), "{reply:?}");
        if much_later {
            // Nothing has withdrawn it: its own time is over.
            world.server.step_clock(LATER, Step::Forward).unwrap();
        } else {
            world.client.store.withdraw(&claim).await.unwrap();
        }
        world
            .other
            .store
            .release(&hold(&held, &grant))
            .await
            .unwrap();
        world.others_use_it().await;
        world.deliver().await;
    }
}

/// Requests that are kept push no others out: a release that is repeated is a release.
#[tokio::test]
async fn requests_that_are_kept_push_no_others_out() {
    let world = World::new(false).await;
    let claims: Vec<_> = (0..OTHERS).map(|_| world.client.mutex("a", LONG)).collect();
    world.old.flow(Direction::Up, Flow::Hold);
    let send = |claim: &Claim| {
        let (store, claim) = (world.client.store.clone(), claim.clone());
        tokio::task::spawn(async move { store.claim(&claim).await.unwrap_err() })
    };
    for failed in claims.iter().map(send).collect::<Vec<_>>() {
        failed.await.unwrap();
    }
    for claim in &claims {
        world.client.store.withdraw(claim).await.unwrap();
    }
    let claim = world.other.mutex("a", LONG);
    let grant = world.other.granted(&claim).await;
    for _ in 0..2 {
        let released = world.other.store.release(&hold(&claim, &grant)).await;
        assert!(released.unwrap().was_held());
    }
    world.others_use_it().await;
    world.deliver().await;
}

/// An evicted hold is not released: its client learns of it at the next renewal, when many others have
/// used the lock. Until then the server remembers the request by itself.
#[tokio::test]
async fn the_first_copy_of_an_evicted_claim_takes_nothing() {
    for (watched, renewed) in [(false, false), (true, false), (false, true)] {
        let world = World::new(watched).await;
        let claim = world.client.mutex("a", LONG);
        world.hold_back(&claim).await;
        let grant = world.client.granted(&claim).await;
        let evicting = world.other.store.evict(&claim.name, Some(grant.seq));
        assert_eq!(evicting.await.unwrap().seqs, [grant.seq]);
        world.others_use_it().await;
        if renewed {
            let before = calls(&world.server);
            let renewal = renewal(&claim, &grant);
            let renewed = world.client.store.renew(&[renewal]).await;
            assert_eq!(renewed.unwrap(), [RenewReply::Lost(LostReason::Evicted)]);
            eventually("the withdrawal", async || {
                calls(&world.server) >= before + 2
            })
            .await;
        }
        world.deliver().await;
    }
}

/// The reply to a claim is lost, its second copy is in transit for longer than the hold lasts, and the client
/// dies: the request is not ended. The same with one that waited.
#[tokio::test]
async fn the_second_copy_of_an_expired_claim_takes_nothing() {
    // A copy may arrive for two seconds all the same.
    const BRIEF: Duration = Duration::from_millis(200);
    for (watched, waits) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new(watched).await;
        let claim = world.client.mutex("a", BRIEF);
        let held = world.other.mutex("a", BRIEF);
        if waits {
            world.other.granted(&held).await;
        }
        world.old.swallow(1, Then::Reset);
        let error = world.client.store.claim(&claim).await.unwrap_err();
        assert!(error.may_have_taken_effect(), "{error}");
        world.client.warm_up("warm", LONG).await;
        world.old = world.proxy.links().pop().unwrap();
        world.old.flow(Direction::Up, Flow::Hold);
        let (store, second) = (world.client.store.clone(), claim.clone());
        let dead = tokio::task::spawn(async move { store.claim(&second).await });
        eventually("it has run out", async || {
            world.other.store.list("").await.unwrap().is_empty()
        })
        .await;
        world.others_use_it().await;
        world.deliver().await;
        dead.abort();
    }
}

/// The server's clock is set: claims go on, without an error.
#[tokio::test]
async fn a_clock_that_is_set_costs_no_claim() {
    let world = World::new(false).await;
    for (by, step) in [
        (LATER, Step::Forward),
        (LATER * 2, Step::Back),
        (LATER, Step::Forward),
    ] {
        world.server.step_clock(by, step).unwrap();
        world.client.warm_up("a", LONG).await;
        world.other.warm_up("b", LONG).await;
    }
}

/// A key is remembered for a second only, and all the same while a copy of its claim may arrive.
#[tokio::test]
async fn a_short_memory_does_not_forget_a_request_too_soon() {
    let server = Redis::with().clock_shim().start().unwrap();
    let proxy = proxy(&server).await;
    let client = Client::open(&behind(&proxy, "&remember=1s")).await.unwrap();
    client.warm_up("warm", LONG).await;
    // The client takes the server's clock to be ahead, so its copies may arrive for long.
    server.step_clock(LATER, Step::Back).unwrap();
    let old = proxy.links().pop().unwrap();
    let claim = client.mutex("a", LONG);
    old.flow(Direction::Up, Flow::Hold);
    client.store.claim(&claim).await.unwrap_err();
    client.store.withdraw(&claim).await.unwrap();
    server.step_clock(LATER / 2, Step::Forward).unwrap();
    let before = calls(&server);
    old.flow(Direction::Up, Flow::Pass);
    eventually("the late copy has arrived", async || {
        calls(&server) > before
    })
    .await;
    assert_eq!(holders(&server, "a").await, 0);
}
