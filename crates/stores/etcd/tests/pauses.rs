//! The server stands still, and clients do, for half a lease and for two.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_core::{LostReason, Result, Status};
use clinch_etcd::EtcdStore;
use clinch_testkit::conformance::{Place, Subject};
use clinch_testkit::holder::{self, Claiming, Holder};
use clinch_testkit::servers::Etcd;
use clinch_testkit::wait::{eventually, soon};
use common::{LONG, clinch, number, pass};
use libtest_mimic::{Arguments, Trial};

const LEASE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(holder::FLAG) {
        return holder::serve(&[Arc::new(One) as Arc<dyn Subject>], words.collect());
    }
    let trials = vec![
        trial("a_server_paused_for_half_a_lease_costs_nothing", || {
            Box::pin(half_a_lease())
        }),
        trial(
            "a_server_paused_for_two_leases_ends_the_hold_on_time",
            || Box::pin(two_leases()),
        ),
        trial("a_server_paused_for_two_leases_serves_one_waiter", || {
            Box::pin(two_leases_with_waiters())
        }),
        trial("a_holder_paused_for_two_leases_knows_that_it_lost", || {
            Box::pin(paused_holder())
        }),
        trial("a_waiter_paused_for_two_leases_uses_no_stale_grant", || {
            Box::pin(paused_waiter())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

type Run = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn trial(name: &str, run: fn() -> Run) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(run());
        Ok(())
    })
}

/// How a holder process opens its store.
struct One;

#[async_trait]
impl Subject for One {
    fn name(&self) -> String {
        "etcd".into()
    }

    fn info(&self) -> StoreInfo {
        EtcdStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        panic!("only processes are started here")
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_etcd::open(&url.parse()?, context).await
    }
}

fn impatient(server: &Etcd) -> String {
    format!("{}/?timeout=300ms", server.url())
}

async fn half_a_lease() {
    let server = Etcd::start().unwrap();
    let clinch = clinch(&impatient(&server)).await;
    let lease = LEASE * 2;
    let guard = clinch.lock("a").lease(lease).acquire().await.unwrap();
    server.pause().unwrap();
    pass(lease / 2).await;
    server.resume().unwrap();
    let lost = tokio::select! {
        reason = guard.lost() => Some(reason),
        () = pass(lease * 3 / 2) => None,
    };
    assert_eq!(lost, None);
    assert!(clinch.check(&guard.sequencer()).await.unwrap().is_current());
    assert!(guard.release().await.unwrap().was_held());
}

async fn two_leases() {
    let server = Etcd::start().unwrap();
    let one = clinch(&impatient(&server)).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let began = one.clock().now();
    server.pause().unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    assert!(!guard.is_valid());
    let left = (LEASE * 2).saturating_sub(one.clock().now().since(began));
    pass(left).await;
    server.resume().unwrap();
    let two = clinch(&server.url()).await;
    let next = soon("the lock", two.lock("a").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(number(&next) > number(&guard));
    // What the first client had still under way does no harm.
    pass(LEASE).await;
    assert!(next.is_valid() && !guard.is_valid());
    assert_eq!(guard.status(), Status::Lost(LostReason::Unrenewed));
    assert_eq!(two.inspect("a").await.unwrap().unwrap().holders.len(), 1);
    assert!(two.check(&next.sequencer()).await.unwrap().is_current());
}

/// A holder and two waiters, all cut off at once: in the end each waiter has its turn, alone.
async fn two_leases_with_waiters() {
    let server = Etcd::start().unwrap();
    let one = clinch(&impatient(&server)).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=2 {
        let other = clinch(&impatient(&server)).await;
        let lock = other.lock("a").lease(LEASE);
        waiting.push(tokio::task::spawn(async move { lock.acquire().await }));
        eventually("it waits", async || {
            one.inspect("a").await.unwrap().unwrap().waiters.len() == count
        })
        .await;
    }
    server.pause().unwrap();
    pass(LEASE * 2).await;
    assert!(!guard.is_valid());
    server.resume().unwrap();
    let mut last = number(&guard);
    while !waiting.is_empty() {
        eventually("somebody enters", async || {
            waiting.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
        let at = waiting.iter().position(|task| task.is_finished()).unwrap();
        let entered = waiting.remove(at).await.unwrap().unwrap();
        assert!(entered.is_valid() && number(&entered) > last);
        assert!(!waiting.iter().any(|task| task.is_finished()), "two are in");
        last = number(&entered);
        entered.release().await.unwrap();
    }
}

async fn paused_holder() {
    let server = Etcd::start().unwrap();
    let me = clinch(&server.url()).await;
    let mut child = Holder::spawn("etcd", &server.url(), "clinch").await;
    let theirs = child.acquire(&Claiming::lock("a", LEASE)).await.unwrap();
    child.watch_for_pause("a", LEASE).await;
    child.stop().await;
    let mine = soon("its lock", me.lock("a").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(mine.token().get() > theirs);
    pass(LEASE).await;
    child.cont();
    let woken = child.reply().await;
    assert_eq!(woken["valid"], false, "it believes in its lock: {woken}");
    assert_ne!(child.release("a").await, "released");
    assert!(mine.is_valid());
    assert!(me.check(&mine.sequencer()).await.unwrap().is_current());
}

/// The grant is pushed to a process that stands; when it goes on, the grant has run out.
async fn paused_waiter() {
    let server = Etcd::start().unwrap();
    let me = clinch(&server.url()).await;
    let first = me.lock("a").lease(LONG).acquire().await.unwrap();
    let mut child = Holder::spawn("etcd", &server.url(), "clinch").await;
    // Long enough that the grant comes while it still has its place.
    let lease = LEASE * 2;
    child.start_acquire(&Claiming::lock("a", lease));
    let view = async || me.inspect("a").await.unwrap().unwrap();
    eventually("it waits", async || view().await.waiters.len() == 1).await;
    child.stop().await;
    first.release().await.unwrap();
    let granted = view().await;
    assert_eq!(granted.holders.len(), 1, "the lock is the child's now");
    let stale = granted.holders.first().unwrap().token.unwrap().get();
    let mine = soon("its lock", me.lock("a").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(mine.token().get() > stale);
    pass(lease).await;
    child.cont();
    // It asks anew and waits for us; the grant of before is in its socket, and does not count.
    eventually("it waits again", async || view().await.waiters.len() == 1).await;
    let token = mine.token().get();
    mine.release().await.unwrap();
    let entered = child.acquired().await.unwrap();
    assert!(entered > token, "{entered} is stale: we had {token}");
}
