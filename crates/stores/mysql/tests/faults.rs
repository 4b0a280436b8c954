//! The network between a client and its server fails at every step of a lock's life.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{ClaimReply, ReleaseReply, RenewReply};
use clinch_core::{Clinch, Guard};
use clinch_testkit::proxy::{Proxy, Then};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::soon;
use common::{
    Client, LONG, all_free, clinch, hold, holders, number, pass, proxy, renewal, through,
};

/// A lease that a hold survives if the next connection works: replies are waited for 1.5 s.
const LEASE: Duration = Duration::from_secs(8);
/// What becomes of the connection whose reply is lost.
const ENDS: [Then; 3] = [Then::Reset, Then::Silence, Then::Hold];

struct World {
    server: MariaDb,
    proxy: Proxy,
    clinch: Clinch,
}

impl World {
    async fn new() -> Self {
        let server = MariaDb::start().unwrap();
        let proxy = proxy(&server).await;
        let clinch = clinch(&through(&proxy)).await;
        // The statements are prepared: from here on each step is one reply.
        let guard = clinch.lock("warm").acquire().await.unwrap();
        guard.release().await.unwrap();
        Self {
            server,
            proxy,
            clinch,
        }
    }

    /// A reply on each of the present connections is lost; later ones work.
    fn lose(&self, reply: u64, then: Then) {
        for link in self.proxy.links() {
            link.swallow(reply, then);
        }
    }

    async fn acquire(&self) -> Guard {
        let lock = self.clinch.lock("a").lease(LEASE);
        soon("the lock", lock.acquire()).await.unwrap()
    }

    /// Nothing is left of it, and the next one need not wait for a lease to end.
    async fn is_free(&self) {
        all_free(&self.server).await;
        let other = clinch(&self.server.url()).await;
        let next = other.lock("a").lease(LONG).try_acquire().await.unwrap();
        assert!(next.is_some());
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_claim_leaves_one_hold_with_one_token() {
    for then in ENDS {
        let world = World::new().await;
        world.lose(1, then);
        let guard = world.acquire().await;
        world.proxy.heal();
        assert!(guard.is_valid());
        let client = Client::at(&world.server).await;
        let view = client.store.inspect(guard.name()).await.unwrap().unwrap();
        let tokens: Vec<_> = view
            .holders
            .iter()
            .map(|p| p.token.unwrap().seq())
            .collect();
        assert_eq!(tokens, [number(&guard)], "{then:?}");
        assert!(guard.release().await.unwrap().was_held());
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_try_is_never_reported_as_taken() {
    for then in ENDS {
        let world = World::new().await;
        world.lose(1, then);
        let lock = world.clinch.lock("a").lease(LEASE);
        let tried = soon("an answer", lock.try_acquire()).await;
        world.proxy.heal();
        // Held, or not known; but no other client holds it, so "no" would be wrong.
        assert!(!matches!(tried, Ok(None)), "{then:?}");
        drop(tried);
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_release_is_made_up_for() {
    for then in ENDS {
        let world = World::new().await;
        let guard = world.acquire().await;
        world.lose(1, then);
        let released = soon("the release", guard.release()).await;
        world.proxy.heal();
        assert!(released.unwrap().was_held(), "{then:?}");
        world.is_free().await;
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_renewal_is_made_up_for() {
    for then in ENDS {
        let world = World::new().await;
        let guard = world.acquire().await;
        world.lose(1, then);
        let lost = tokio::select! {
            reason = guard.lost() => Some(reason),
            () = pass(LEASE * 3 / 2) => None,
        };
        world.proxy.heal();
        assert_eq!(lost, None, "{then:?}");
        assert!(guard.is_valid());
        assert_eq!(holders(&world.server, "a").await, 1);
        assert!(guard.release().await.unwrap().was_held());
        world.is_free().await;
    }
}

/// Every reply of a contended lock's life is lost once: to the claim, to the place in the queue, to
/// the wake, to the read and the write of the release.
#[tokio::test]
async fn each_reply_of_a_contended_lock_may_be_lost() {
    for (reply, late) in [(1, false), (2, false), (3, false), (1, true), (2, true)] {
        let world = World::new().await;
        let other = clinch(&world.server.url()).await;
        let first = other.lock("a").lease(LONG).acquire().await.unwrap();
        let waiting = {
            let lock = world.clinch.lock("a").lease(LEASE);
            tokio::spawn(async move { lock.acquire().await })
        };
        if !late {
            world.lose(reply, Then::Reset);
        }
        let client = Client::at(&world.server).await;
        clinch_testkit::wait::eventually("the waiter is queued", async || {
            let view = client.store.inspect(first.name()).await.unwrap();
            view.is_some_and(|view| view.waiters.len() == 1)
        })
        .await;
        if late {
            // The parked connection is among them.
            world.lose(reply, Then::Reset);
        }
        let before = number(&first);
        assert!(first.release().await.unwrap().was_held());
        let second = soon("the waiter", waiting).await.unwrap().unwrap();
        assert!(number(&second) > before, "reply {reply}");
        let released = soon("the release", second.release()).await.unwrap();
        assert!(released.was_held(), "reply {reply}");
        world.proxy.heal();
        world.is_free().await;
    }
}

/// What a lost reply leaves unknown is asked again with the same id, below the engine too.
#[tokio::test]
async fn every_step_repeated_gives_the_same_answer() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    assert_eq!(client.granted(&claim).await, grant);
    let renewals = [renewal(&claim, &grant)];
    for _ in 0..2 {
        let renewed = client.store.renew(&renewals).await.unwrap();
        assert_eq!(renewed, [RenewReply::Held]);
    }
    for _ in 0..2 {
        let released = client.store.release(&hold(&claim, &grant)).await.unwrap();
        assert_eq!(released, ReleaseReply::Released);
    }
    let late = client.store.claim(&claim).await.unwrap();
    assert!(matches!(late, ClaimReply::Gone(_)), "{late:?}");
}

/// The withdrawal overtakes its claim, which is still on its way.
#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_is_refused() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    for name in ["new", "used"] {
        if name == "used" {
            let claim = client.mutex(name, LONG);
            let grant = client.granted(&claim).await;
            client.store.release(&hold(&claim, &grant)).await.unwrap();
        }
        let claim = client.mutex(name, LONG);
        client.store.withdraw(&claim).await.unwrap();
        let late = client.store.claim(&claim).await.unwrap();
        assert!(matches!(late, ClaimReply::Gone(_)), "{late:?}");
    }
}
