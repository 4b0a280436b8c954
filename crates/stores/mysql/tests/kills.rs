//! A connection is ended with `KILL` at every single statement of a lock's life: the connection
//! whose reply is just under way. The reply is lost with it; or it still arrives, and the
//! next statement finds a dead connection. And in the middle of a statement, while it waits for a
//! row that another session has locked.
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

/// More replies than any life of a lock has.
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
        // Statements are prepared, and the client has cached that no client watches.
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
            // With its own parked connection, whose replies count too.
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
        // To queue, to listen, to be woken, to release.
        assert!(n > 6, "only {n} replies");
        println!("{reply:?}: {} statements", n - 1);
    }
    all_free(&world.server).await;
}

/// Ends the statement that waits for a row, or its connection, as soon as there is one.
async fn interrupt(server: &MariaDb, kill: &str) {
    let mut before = Vec::new();
    eventually("a statement waits for the row", async || {
        let now = busy(server);
        // Seen twice, it is not one that was just passing.
        let waits = now.iter().find(|id| before.contains(*id));
        let killed = waits.is_some_and(|id| server.sql(&format!("{kill} {id}")).is_ok());
        before = now;
        killed
    })
    .await;
}

/// The connections of clients that do something. The parked connection waits, too, but for a user-level lock.
fn busy(server: &MariaDb) -> Vec<String> {
    // Not by SELECT, which fails on MySQL while a statement with bytes in it runs.
    let all = server.sql("SHOW PROCESSLIST").unwrap();
    let busy = all.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let (id, user) = (columns.next()?, columns.next()?);
        let (command, state) = (columns.nth(2)?, columns.nth(1)?);
        let runs = matches!(command, "Query" | "Execute") && state != "User lock";
        (user == "clinch" && runs).then(|| id.to_owned())
    });
    busy.collect()
}

/// Takes a step whose first statement is ended in its middle.
async fn interrupted<T>(
    server: &MariaDb,
    kill: &str,
    what: &str,
    step: impl AsyncFnMut() -> Result<T>,
) -> T {
    let locked = "BEGIN; SELECT seq FROM clinch_names WHERE name = 'a' FOR UPDATE";
    let stranger = server.stranger(locked).unwrap();
    let disturb = async {
        interrupt(server, kill).await;
        drop(stranger);
    };
    tokio::join!(persist(what, step), disturb).0
}

/// A statement that waits in the server has no effect if it ends there; the next try has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_killed_while_it_waits_for_its_row() {
    let server = MariaDb::start().unwrap();
    let (one, other) = (Client::at(&server).await, Client::at(&server).await);
    alone(&one, "a").await;
    let mut before = 0;
    for kill in ["KILL QUERY", "KILL CONNECTION"] {
        // One that has just had it, and one that has not: two statements take a free name.
        for client in [&one, &other] {
            let claim = client.mutex("a", LONG);
            let claiming = async || client.store.claim(&claim).await;
            let ClaimReply::Granted(grant) = interrupted(&server, kill, "claim", claiming).await
            else {
                panic!("it was free")
            };
            assert!(grant.seq > before, "{} after {before}", grant.seq);
            before = grant.seq;
            let renewals = [renewal(&claim, &grant)];
            let renewing = async || client.store.renew(&renewals).await;
            let renewed = interrupted(&server, kill, "renew", renewing).await;
            assert_eq!(renewed, [RenewReply::Held]);
            let behind = other.mutex("a", LONG);
            let queueing = async || other.store.claim(&behind).await;
            let queued = interrupted(&server, kill, "queue", queueing).await;
            assert!(matches!(queued, ClaimReply::Queued(_)), "{queued:?}");
            let leaving = async || other.store.withdraw(&behind).await;
            interrupted(&server, kill, "withdraw", leaving).await;
            let held = hold(&claim, &grant);
            let releasing = async || client.store.release(&held).await;
            let released = interrupted(&server, kill, "release", releasing).await;
            assert_eq!(released, ReleaseReply::Released);
        }
    }
    all_free(&server).await;
}
