//! The network between a client and its Redis fails at every step of a lock's life.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{ClaimReply, EventKind, Events};
use clinch_core::{Clinch, Guard, LostReason, Status};
use clinch_testkit::proxy::{Direction, Flow, Link, Proxy, Then};
use clinch_testkit::servers::Redis;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, calls, clinch, holders, number, pass, proxy, through};

/// A lease that a hold survives if the next connection works: replies are waited for 500 ms.
const LEASE: Duration = Duration::from_secs(4);
/// What becomes of the connection whose reply is lost.
const ENDS: [Then; 3] = [Then::Reset, Then::Silence, Then::Hold];

struct World {
    server: Redis,
    proxy: Proxy,
    clinch: Clinch,
}

impl World {
    async fn new() -> Self {
        let server = Redis::start().unwrap();
        let proxy = proxy(&server).await;
        let clinch = clinch(&through(&proxy)).await;
        // The server has the script: from here on each step is one reply.
        let guard = clinch.lock("warm").acquire().await.unwrap();
        guard.release().await.unwrap();
        Self {
            server,
            proxy,
            clinch,
        }
    }

    fn link(&self) -> Link {
        self.proxy.links().pop().unwrap()
    }

    async fn acquire(&self) -> Guard {
        let lock = self.clinch.lock("a").lease(LEASE);
        soon("the lock", lock.acquire()).await.unwrap()
    }

    /// The guard is the only holder that the server knows of, and stays so beyond its lease.
    async fn is_kept(&self, guard: &Guard) {
        let lost = tokio::select! {
            reason = guard.lost() => Some(reason),
            () = pass(LEASE * 3 / 2) => None,
        };
        assert_eq!(lost, None);
        assert!(guard.is_valid());
        let current = self.clinch.check(&guard.sequencer()).await.unwrap();
        assert!(current.is_current());
        assert_eq!(holders(&self.server, "a").await, 1);
    }

    /// Nothing is left of it, and the next one need not wait for a lease to end.
    async fn is_free(&self) {
        all_free(&self.server).await;
        let other = clinch(&self.server.url()).await;
        let next = other.lock("a").lease(LONG).try_acquire().await.unwrap();
        assert!(next.is_some());
    }
}

/// Grants of the name so far.
async fn grants(events: &mut Events) -> Vec<u64> {
    let mut grants = Vec::new();
    while let Ok(Some(event)) =
        tokio::time::timeout(Duration::from_millis(300), events.next()).await
    {
        if event.kind == EventKind::Granted {
            grants.extend(event.token.map(|token| token.seq()));
        }
    }
    grants
}

#[tokio::test]
async fn a_lost_reply_to_a_claim_leaves_one_hold_with_one_token() {
    for then in ENDS {
        let world = World::new().await;
        let watcher = Client::at(&world.server).await;
        let mut events = watcher.store.events("a").await.unwrap();
        world.link().swallow(1, then);
        let guard = world.acquire().await;
        assert!(guard.is_valid());
        world.proxy.heal();
        assert_eq!(grants(&mut events).await, [number(&guard)], "{then:?}");
        assert_eq!(holders(&world.server, "a").await, 1);
        assert!(guard.release().await.unwrap().was_held());
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_try_is_never_reported_as_taken() {
    for then in ENDS {
        let world = World::new().await;
        world.link().swallow(1, then);
        let lock = world.clinch.lock("a").lease(LONG);
        let guard = soon("an answer", lock.try_acquire()).await.unwrap();
        assert!(guard.is_some_and(|guard| guard.is_valid()), "{then:?}");
        world.proxy.heal();
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_renewal_is_made_up_for() {
    let [one, two, three] = ENDS.map(|then| survives(move |link| link.swallow(1, then)));
    tokio::join!(one, two, three);
}

/// A hold survives what happens to the connection before its next renewal.
async fn survives(fault: impl FnOnce(&Link)) {
    let world = World::new().await;
    let guard = world.acquire().await;
    let before = world.proxy.links().len();
    fault(&world.link());
    world.is_kept(&guard).await;
    assert!(
        world.proxy.links().len() > before,
        "over another connection"
    );
    assert!(guard.release().await.unwrap().was_held());
    world.is_free().await;
}

#[tokio::test]
async fn a_lost_reply_to_a_release_is_made_up_for() {
    for then in ENDS {
        let world = World::new().await;
        let lock = world.clinch.lock("a").lease(LONG);
        let guard = lock.acquire().await.unwrap();
        world.link().swallow(1, then);
        let reply = soon("the release", guard.release()).await.unwrap();
        assert!(reply.was_held(), "{then:?}");
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_withdrawal_is_made_up_for() {
    for then in ENDS {
        let world = World::new().await;
        let other = clinch(&world.server.url()).await;
        let held = other.lock("a").lease(LONG).acquire().await.unwrap();
        let lock = world.clinch.lock("a").lease(LONG);
        let waiting = tokio::task::spawn(async move { lock.acquire().await.map(drop) });
        let waiters = async || {
            let view = other.inspect("a").await.unwrap().unwrap();
            view.waiters.len()
        };
        eventually("it waits", async || waiters().await == 1).await;
        world.link().swallow(1, then);
        waiting.abort();
        eventually("it has gone", async || waiters().await == 0).await;
        held.release().await.unwrap();
        world.is_free().await;
    }
}

/// Every reply takes two leases: no grant can be used, and none is kept.
#[tokio::test]
async fn a_grant_that_comes_after_its_lease_is_not_reported_and_not_kept() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let clinch = clinch(&format!("redis://{}/?timeout=30s", proxy.addr())).await;
    let lease = Duration::from_millis(300);
    proxy.flow(Direction::Down, Flow::Delay(lease * 2));
    let lock = clinch.lock("a").lease(lease);
    let error = soon("an answer", lock.acquire()).await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    proxy.heal();
    all_free(&server).await;
}

/// The server renews, and its reply arrives too late: what was lost stays lost, and is released.
#[tokio::test]
async fn a_renewal_acknowledged_after_the_deadline_revives_nothing() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let clinch = clinch(&format!("redis://{}/?timeout=30s", proxy.addr())).await;
    let guard = clinch.lock("a").lease(LEASE).acquire().await.unwrap();
    proxy.flow(Direction::Down, Flow::Hold);
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    assert_eq!(
        holders(&server, "a").await,
        1,
        "the server has the renewals"
    );
    proxy.heal();
    // Released at once: no client waits for the lease that the server has extended.
    all_free(&server).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.status(), Status::Lost(LostReason::Unrenewed));
    assert_eq!(
        format!("{:?}", guard.release().await.unwrap()),
        "WasLost(Unrenewed)"
    );
}

#[tokio::test]
async fn a_release_acknowledged_after_the_lease_is_not_called_lost() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let clinch = clinch(&format!("redis://{}/?timeout=30s", proxy.addr())).await;
    let lease = Duration::from_millis(500);
    let guard = clinch.lock("a").lease(lease).acquire().await.unwrap();
    proxy.flow(Direction::Down, Flow::Delay(lease * 2));
    match soon("the release", guard.release()).await {
        Ok(reply) => assert!(reply.was_held()),
        Err(error) => assert!(error.may_have_taken_effect(), "{error}"),
    }
    all_free(&server).await;
}

/// The claim arrives after it was withdrawn.
#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_is_refused() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let client = Client::open(&through(&proxy)).await.unwrap();
    let warm = client.mutex("warm", LONG);
    client.granted(&warm).await;
    let claim = client.mutex("a", LONG);
    let old = proxy.links().pop().unwrap();
    old.flow(Direction::Up, Flow::Hold);
    let error = client.store.claim(&claim).await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    client.store.withdraw(&claim).await.unwrap();
    let before = calls(&server);
    old.flow(Direction::Up, Flow::Pass);
    eventually("the late copy has arrived", async || {
        calls(&server) > before
    })
    .await;
    assert_eq!(holders(&server, "a").await, 0);
    let reply = client.store.claim(&claim).await.unwrap();
    assert!(matches!(reply, ClaimReply::Gone(_)), "{reply:?}");
}

/// The connection ends after any number of bytes of a claim, or of its reply.
#[tokio::test]
async fn a_connection_cut_anywhere_in_a_claim_leaves_one_hold() {
    for direction in [Direction::Up, Direction::Down] {
        for bytes in [1, 9, 40, 200] {
            let world = World::new().await;
            world.link().cut_after(direction, bytes);
            let guard = world.acquire().await;
            assert!(guard.is_valid(), "{direction:?} {bytes}");
            assert_eq!(holders(&world.server, "a").await, 1);
            assert!(guard.release().await.unwrap().was_held());
            world.is_free().await;
        }
    }
}

#[tokio::test]
async fn a_connection_cut_in_a_release_releases_all_the_same() {
    for direction in [Direction::Up, Direction::Down] {
        for bytes in [1, 40] {
            let world = World::new().await;
            let guard = world.clinch.lock("a").lease(LONG).acquire().await.unwrap();
            world.link().cut_after(direction, bytes);
            let reply = soon("the release", guard.release()).await.unwrap();
            assert!(reply.was_held(), "{direction:?} {bytes}");
            world.is_free().await;
        }
    }
}

#[tokio::test]
async fn resets_while_held_cost_nothing() {
    let world = World::new().await;
    let guard = world.acquire().await;
    for _ in 0..3 {
        world.proxy.reset();
        assert!(guard.is_valid());
        pass(LEASE / 4).await;
    }
    world.is_kept(&guard).await;
    assert!(guard.release().await.unwrap().was_held());
    world.is_free().await;
}

/// A silently dead connection is dropped, and the hold lives on over the next.
#[tokio::test]
async fn dead_connections_are_given_up_in_time() {
    tokio::join!(
        survives(Link::half_open),
        survives(|link| link.flow(Direction::Up, Flow::Blackhole)),
        survives(|link| link.flow(Direction::Down, Flow::Blackhole)),
    );
}

/// Nothing passes, not on new connections either, until the hold is suspect; then the network recovers.
#[tokio::test]
async fn a_path_that_heals_within_the_lease_costs_nothing() {
    let world = World::new().await;
    let guard = world.acquire().await;
    world.proxy.flow(Direction::Up, Flow::Blackhole);
    world.proxy.flow(Direction::Down, Flow::Blackhole);
    eventually("it is suspect", async || guard.status() == Status::Suspect).await;
    assert!(guard.is_valid());
    world.proxy.heal();
    world.is_kept(&guard).await;
    eventually("it is held", async || guard.status() == Status::Held).await;
}

/// A path that does not heal: the guard knows by its clock alone.
#[tokio::test]
async fn a_path_that_does_not_heal_ends_the_hold_on_time() {
    let world = World::new().await;
    let guard = world.acquire().await;
    world.proxy.down();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    assert!(!guard.is_valid());
    let other = clinch(&world.server.url()).await;
    let next = soon("the lock", other.lock("a").acquire()).await.unwrap();
    assert!(number(&next) > number(&guard));
}

/// Many clients claim while the server is silent: each fails within about two timeouts, not one after the other.
#[tokio::test]
async fn a_silent_server_fails_all_callers_together() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let client = Client::open(&through(&proxy)).await.unwrap();
    let store = client.store.clone();
    proxy.flow(Direction::Down, Flow::Blackhole);
    let began = clinch_core::Clock::boot().now();
    let mut claims = Vec::new();
    for i in 0..600 {
        let (store, claim) = (store.clone(), client.mutex(&format!("n{i}"), LONG));
        claims.push(tokio::task::spawn(async move {
            store.claim(&claim).await.unwrap_err().kind()
        }));
    }
    for answer in claims {
        let kind = soon("an answer", answer).await.unwrap();
        assert_eq!(kind, clinch_core::ErrorKind::Unreachable);
    }
    let took = clinch_core::Clock::boot().now().since(began);
    // In turn it would be a timeout of 500 ms for each 128 of them, and more for connecting.
    assert!(took < Duration::from_millis(2000), "{took:?}");
    proxy.heal();
    client.granted(&client.mutex("after", LONG)).await;
}

/// A connection goes silent: it is given up in time for a short lease as well, whatever the timeout of
/// replies is. Nobody else's requests have to show that it is silent.
#[tokio::test]
async fn a_silent_connection_costs_no_hold_with_a_short_lease() {
    let server = Redis::start().unwrap();
    let proxy = proxy(&server).await;
    let clinch = clinch(&format!("redis://{}/?timeout=20s", proxy.addr())).await;
    let lease = Duration::from_secs(6);
    let guard = clinch.lock("a").lease(lease).acquire().await.unwrap();
    let claimed = clinch.lock("b").lease(LONG).acquire().await.unwrap();
    let old = proxy.links().pop().unwrap();
    old.flow(Direction::Down, Flow::Blackhole);
    // As many requests as may be in flight are, and wait for their replies.
    let waiting: Vec<_> = (0..2)
        .map(|n| {
            let clinch = clinch.clone();
            tokio::task::spawn(async move { clinch.inspect(&format!("x{n}")).await.map(drop) })
        })
        .collect();
    let lost = tokio::select! {
        reason = guard.lost() => Some(reason),
        () = pass(lease * 3 / 2) => None,
    };
    assert_eq!(lost, None);
    assert!(guard.is_valid());
    assert!(claimed.is_valid());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
