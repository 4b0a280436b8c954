//! Copies of a claim that arrive late, after the client has given up their connection and others have
//! held the lock many times: they never take it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, ReleaseReply};
use clinch_testkit::proxy::{Direction, Flow, Link, Proxy, Then};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, hold, proxy, through};

/// Other holders in between: more than a row remembers by count.
const OTHERS: usize = 12;
/// Both ways to take a name with one statement.
const DIALECTS: [&str; 2] = ["", "&dialect=mysql"];
const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))";
const SECOND: u64 = 1_000_000;

struct World {
    server: MariaDb,
    proxy: Proxy,
    /// Through the proxy.
    url: String,
    /// Behind the proxy, with few connections.
    late: Client,
    others: Client,
}

impl World {
    async fn new(dialect: &str) -> Self {
        let server = MariaDb::start().unwrap();
        let proxy = proxy(&server).await;
        let url = format!("{}&pool=2{dialect}", through(&proxy));
        let late = Client::open(&url).await.unwrap();
        let others = Client::at(&server).await;
        // The statement is prepared on the connection, so that one packet is a claim.
        pair(&late, "warm").await;
        Self {
            server,
            proxy,
            url,
            late,
            others,
        }
    }

    /// Holds up what is sent on the connections that were opened after a number of others.
    fn hold_up(&self, others: usize) -> Late {
        let links = self.proxy.links().into_iter().skip(others);
        let links: Vec<_> = links.filter(Link::is_open).collect();
        for link in &links {
            link.flow(Direction::Up, Flow::Hold);
        }
        Late(links)
    }

    /// Sends a claim that is held up on its way, until the client has no more patience with it.
    async fn send_late(&self, claim: &Claim) -> Late {
        let late = self.hold_up(0);
        let error = self.late.store.claim(claim).await.unwrap_err();
        assert!(error.may_have_taken_effect(), "{error}");
        late
    }

    /// A number that the server knows.
    fn ask(&self, sql: &str) -> u64 {
        self.server.sql(sql).unwrap().trim().parse().unwrap()
    }

    /// Waits until the server's clock has passed this.
    async fn until(&self, moment: u64) {
        eventually("time passes", async || self.ask(NOW) > moment).await;
    }

    async fn others_hold(&self, name: &str) {
        for _ in 0..OTHERS {
            pair(&self.others, name).await;
        }
    }

    async fn assert_free(&self, name: &str) {
        let name = clinch_core::Name::new(name).unwrap();
        let view = self.others.store.inspect(&name).await.unwrap();
        assert!(view.is_none(), "a late copy has taken it: {view:?}");
        pair(&self.others, name.as_str()).await;
    }
}

/// Connections on which something is held up.
struct Late(Vec<Link>);

impl Late {
    /// Lets it arrive, and waits until the server has done all of it.
    async fn arrive(self) {
        for link in &self.0 {
            link.flow(Direction::Up, Flow::Pass);
        }
        eventually("the server is done with the connection", async || {
            // The client has left them, so the server closes them after the last statement.
            self.0.iter().all(|link| !link.is_open())
        })
        .await;
    }
}

async fn pair(client: &Client, name: &str) {
    let claim = client.mutex(name, LONG);
    let grant = client.granted(&claim).await;
    let released = client.store.release(&hold(&claim, &grant)).await.unwrap();
    assert_eq!(released, ReleaseReply::Released);
}

/// The repeated claim is granted and released; then the first copy arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_arrives_after_its_release_takes_nothing() {
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let claim = world.late.mutex("a", LONG);
        let late = world.send_late(&claim).await;
        let grant = world.late.granted(&claim).await;
        let hold = hold(&claim, &grant);
        let released = world.late.store.release(&hold).await.unwrap();
        assert_eq!(released, ReleaseReply::Released);
        world.others_hold("a").await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}

/// The repeated try is refused and withdrawn; then the first copy arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_arrives_after_its_withdrawal_takes_nothing() {
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let theirs = world.others.mutex("a", LONG);
        let grant = world.others.granted(&theirs).await;
        let claim = Claim {
            queue: false,
            ..world.late.mutex("a", LONG)
        };
        let late = world.send_late(&claim).await;
        let again = world.late.store.claim(&claim).await.unwrap();
        assert!(matches!(again, ClaimReply::Busy(_)), "{again:?}");
        world.late.store.withdraw(&claim).await.unwrap();
        world
            .others
            .store
            .release(&hold(&theirs, &grant))
            .await
            .unwrap();
        world.others_hold("a").await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}

/// The same as users see it: a try gets a "no", and stays without the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_is_refused_takes_nothing_later() {
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let theirs = world.others.mutex("a", LONG);
        let grant = world.others.granted(&theirs).await;
        let before = world.proxy.links().len();
        let clinch = clinch(&world.url).await;
        // The statement is prepared on its connection.
        let warm = clinch.lock("warm").lease(LONG).acquire().await.unwrap();
        warm.release().await.unwrap();
        let late = world.hold_up(before);
        let lock = clinch.lock("a").lease(LONG);
        let tried = soon("the try", lock.try_acquire()).await.unwrap();
        assert!(tried.is_none());
        let hold = hold(&theirs, &grant);
        world.others.store.release(&hold).await.unwrap();
        world.others_hold("a").await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}

/// The hold of the repeated claim is evicted; then the first copy arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_arrives_after_its_eviction_takes_nothing() {
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let claim = world.late.mutex("a", LONG);
        let late = world.send_late(&claim).await;
        let grant = world.late.granted(&claim).await;
        let evicted = world.others.store.evict(&claim.name, Some(grant.seq)).await;
        assert_eq!(evicted.unwrap().seqs, [grant.seq]);
        world.others_hold("a").await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}

/// No client is left to withdraw the claim: it is too late by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_arrives_after_its_client_has_gone_takes_nothing() {
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let claim = world.late.mutex("a", LONG);
        let late = world.send_late(&claim).await;
        world.others_hold("a").await;
        // Twice the timeout and the error of the estimate.
        world.until(world.ask(NOW) + 4 * SECOND).await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}

/// The first copy had no reply, and its client is gone before the second one arrives: after the lease
/// has ended, and still in time by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_arrives_after_its_lease_has_ended_takes_nothing() {
    // A copy may be late by half of it, which is twice the time for which a reply is waited for.
    const LEASE: Duration = Duration::from_secs(6);
    for dialect in DIALECTS {
        let world = World::new(dialect).await;
        let claim = world.late.mutex("a", LEASE);
        for link in world.proxy.links() {
            link.swallow(1, Then::Silence);
        }
        let error = world.late.store.claim(&claim).await.unwrap_err();
        assert!(error.may_have_taken_effect(), "{error}");
        let ends = world.ask("SELECT until FROM clinch_names WHERE name = 'a'");
        // The statement is prepared on a new connection.
        pair(&world.late, "warm again").await;
        world.until(ends - 3 * SECOND / 2).await;
        let late = world.send_late(&claim).await;
        world.until(ends).await;
        world.others_hold("a").await;
        late.arrive().await;
        world.assert_free("a").await;
        all_free(&world.server).await;
    }
}
