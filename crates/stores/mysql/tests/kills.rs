//! Somebody ends a connection with `KILL` at every single statement of a lock's life: the connection
//! whose reply is just under way. The reply is lost with it; or it still arrives, and the
//! next statement finds a dead connection.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Grant, ReleaseReply, RenewReply};
use clinch_core::{Clinch, Result};
use clinch_testkit::proxy::{Direction, Flow, Proxy};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, hold, number, proxy, renewal, through};

/// No life of a lock has so many replies.
const MOST: u64 = 60;
/// Few connections: the one that was killed is the next one to be used.
const POOL: &str = "pool=2";

#[derive(Debug, Clone, Copy)]
enum Reply {
    Lost,
    Arrives,
}

struct World {
    server: Arc<MariaDb>,
    proxy: Proxy,
}

impl World {
    async fn new() -> Self {
        let server = Arc::new(MariaDb::start().unwrap());
        let proxy = proxy(&server).await;
        Self { server, proxy }
    }

    fn url(&self) -> String {
        format!("{}&{POOL}", through(&self.proxy))
    }

    /// Kills the connection of the n-th reply from now on, in the background. What it gives turns true
    /// when there is such a reply, before the client can know.
    fn kill_at(&self, n: u64, reply: Reply) -> Arc<AtomicBool> {
        let (caught, server) = (self.proxy.catch(n), self.server.clone());
        let reached = Arc::new(AtomicBool::new(false));
        let says = reached.clone();
        tokio::spawn(async move {
            // The proxy forgets a reply that has never come.
            let Ok(link) = caught.await else { return };
            says.store(true, Ordering::SeqCst);
            let port = link.port().unwrap();
            let killing = move || server.kill_connection_from(port).unwrap();
            tokio::task::spawn_blocking(killing).await.unwrap();
            match reply {
                Reply::Lost => link.reset(),
                Reply::Arrives => link.flow(Direction::Down, Flow::Pass),
            }
        });
        reached
    }
}

/// Repeats a step as the engine does, with the same ids: what may have happened is asked again.
async fn persist<T>(what: &str, mut step: impl AsyncFnMut() -> Result<T>) -> T {
    let mut last = None;
    for _ in 0..10 {
        match step().await {
            Ok(done) => return done,
            Err(error) if error.is_temporary() => last = Some(error),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    panic!("{what}: {last:?}")
}

async fn granted(client: &Client, claim: &Claim) -> Grant {
    match persist("claim", async || client.store.claim(claim).await).await {
        ClaimReply::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// A name is taken, renewed, given up, and taken and given up once more.
async fn alone(client: &Client, name: &str) {
    let mut before = 0;
    for _ in 0..2 {
        let claim = client.mutex(name, LONG);
        let grant = granted(client, &claim).await;
        assert!(grant.seq > before, "{} after {before}", grant.seq);
        if before > 0 {
            assert_eq!(grant.predecessor.as_ref().map(|p| p.seq), Some(before));
        }
        before = grant.seq;
        assert_eq!(granted(client, &claim).await.seq, grant.seq);
        let renewals = [renewal(&claim, &grant)];
        let renewed = persist("renew", async || client.store.renew(&renewals).await).await;
        assert_eq!(renewed, [RenewReply::Held]);
        let held = hold(&claim, &grant);
        let released = persist("release", async || client.store.release(&held).await).await;
        assert_eq!(released, ReleaseReply::Released);
    }
}

/// A lock is waited for, got from another client, and given to that client, who waits by then.
async fn contended(one: &Clinch, other: &Clinch, watch: &Client, name: &str) {
    let waits = async |name: &clinch_core::Name| {
        eventually("the waiter is queued", async || {
            let view = watch.store.inspect(name).await.unwrap();
            view.is_some_and(|view| view.waiters.len() == 1)
        })
        .await;
    };
    let first = other.lock(name).lease(LONG).acquire().await.unwrap();
    let lock = one.lock(name).lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waits(first.name()).await;
    let before = number(&first);
    assert!(first.release().await.unwrap().was_held());
    let second = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(number(&second) > before);
    let lock = other.lock(name).lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waits(second.name()).await;
    let before = number(&second);
    let released = soon("the release", second.release()).await.unwrap();
    assert!(released.was_held());
    let third = soon("the other waiter", waiting).await.unwrap().unwrap();
    assert!(number(&third) > before);
    assert!(third.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_killed_at_any_statement_of_a_free_lock() {
    let world = World::new().await;
    for reply in [Reply::Lost, Reply::Arrives] {
        let client = Client::open(&world.url()).await.unwrap();
        // Statements are prepared, and the client has learnt that nobody watches.
        alone(&client, "warm").await;
        alone(&client, "warm").await;
        let mut n = 1;
        loop {
            let killed = world.kill_at(n, reply);
            alone(&client, &format!("{reply:?}/{n}")).await;
            if !killed.load(Ordering::SeqCst) {
                // Or it would be a reply to the next client.
                world.proxy.heal();
                break;
            }
            n += 1;
            assert!(n < MOST, "no end of replies");
        }
        // Two lives with a claim, its repetition, a renewal and a release.
        assert!(n > 8, "only {n} replies");
        println!("{reply:?}: {} statements", n - 1);
    }
    all_free(&world.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_killed_at_any_statement_of_a_contended_lock() {
    let world = World::new().await;
    let other = clinch(&world.server.url()).await;
    let watch = Client::at(&*world.server).await;
    for reply in [Reply::Lost, Reply::Arrives] {
        let mut n = 1;
        loop {
            // With its own bell, whose replies count too.
            let one = clinch(&world.url()).await;
            let killed = world.kill_at(n, reply);
            contended(&one, &other, &watch, &format!("{reply:?}/{n}")).await;
            let reached = killed.load(Ordering::SeqCst);
            if !reached {
                // Or it would be a reply to the next client.
                world.proxy.heal();
            }
            tokio::time::timeout(Duration::from_secs(5), one.close())
                .await
                .unwrap()
                .unwrap();
            if !reached {
                break;
            }
            n += 1;
            assert!(n < MOST, "no end of replies");
        }
        // To queue, to listen, to hear, to give up.
        assert!(n > 6, "only {n} replies");
        println!("{reply:?}: {} statements", n - 1);
    }
    all_free(&world.server).await;
}
