//! A server stands still, and clients do, for half a lease and for two.
//!
//! A store's crate has one test binary for it (`harness = false` in its `Cargo.toml`), because it
//! starts itself again as the process that is to be paused.

use std::future::Future;
use std::marker::PhantomData;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Clinch, LostReason, Result, Status};
use libtest_mimic::{Arguments, Trial};

use crate::clients::{Client, LONG, Located, Opens, number, pass};
use crate::conformance::{Place, Subject};
use crate::holder::{self, Claiming, Holder};
use crate::servers::{Engine, Server};
use crate::wait::{eventually, soon};

const LEASE: Duration = Duration::from_secs(2);

/// A server that can be paused.
///
/// ```no_run
/// use clinch_testkit::{pauses::Pausable, servers::Redis};
/// # fn main() -> clinch_core::Result<()> {
/// let server = Redis::start()?;
/// Pausable::pause(&server)?; // connections stay open, no request is answered
/// # Ok(()) }
/// ```
pub trait Pausable: Located {
    /// Stops it.
    fn pause(&self) -> Result<()>;
    /// Continues it.
    fn resume(&self) -> Result<()>;
}

impl<E: Engine> Pausable for Server<E>
where
    Self: Located,
{
    fn pause(&self) -> Result<()> {
        Server::pause(self)
    }

    fn resume(&self) -> Result<()> {
        Server::resume(self)
    }
}

/// The stores of a crate and their server; see [`main`].
pub trait Paused: Opens + Send + Sync + 'static {
    /// What is paused.
    type Server: Pausable;

    /// What the store says of itself.
    fn info() -> StoreInfo;

    /// A server for one case.
    fn start() -> Self::Server;

    /// A whole client, without hand-over inside the process.
    fn clinch(url: &str) -> impl Future<Output = Clinch>;
}

/// All cases, as the `main` of a test binary.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use clinch_core::{Clinch, Result, StoreUrl, memory::MemoryStore, store::{Admin, OpenContext, StoreInfo}};
/// use clinch_testkit::{clients::{Client, Opens}, pauses::{self, Paused}, servers::Redis};
/// struct Mine;
/// # impl Opens for Mine {
/// #     async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
/// #         Ok(Arc::new(MemoryStore::open(url, context)?))
/// #     }
/// # }
/// impl Paused for Mine {
///     type Server = Redis;
///     fn info() -> StoreInfo { MemoryStore::describe() } // its own
///     fn start() -> Redis { Redis::start().unwrap() }
///     async fn clinch(url: &str) -> Clinch { Client::<Self>::whole(url).await.unwrap() }
/// }
/// fn main() -> std::process::ExitCode { pauses::main::<Mine>() }
/// ```
pub fn main<P: Paused>() -> ExitCode {
    let trials = vec![
        trial("a_server_paused_for_half_a_lease_costs_nothing", || {
            half_a_lease::<P>()
        }),
        trial(
            "a_server_paused_for_two_leases_ends_the_hold_on_time",
            || two_leases::<P>(),
        ),
        trial("a_server_paused_for_two_leases_serves_one_waiter", || {
            two_leases_with_waiters::<P>()
        }),
        trial("a_holder_paused_for_two_leases_knows_that_it_lost", || {
            paused_holder::<P>()
        }),
        trial("a_waiter_paused_for_two_leases_uses_no_stale_grant", || {
            paused_waiter::<P>()
        }),
    ];
    run::<P>(P::info(), trials)
}

/// Runs trials whose [holders](Holder) are this binary, started again; its `main` for other cases.
///
/// ```no_run
/// use clinch_core::memory::MemoryStore;
/// use clinch_testkit::{clients::Memory, pauses};
/// fn main() -> std::process::ExitCode {
///     let trials = vec![pauses::trial("nothing_happens", || async {})];
///     pauses::run::<Memory>(MemoryStore::describe(), trials)
/// }
/// ```
pub fn run<O: Opens + 'static>(info: StoreInfo, trials: Vec<Trial>) -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(holder::FLAG) {
        let subject: Arc<dyn Subject> = Arc::new(Opened::<O>(info, PhantomData));
        return holder::serve(&[subject], words.collect());
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A case with a runtime of its own; see [`run`].
pub fn trial<F: Future<Output = ()>>(
    name: &str,
    case: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(case());
        Ok(())
    })
}

/// How a holder process opens its store.
struct Opened<O>(StoreInfo, PhantomData<fn() -> O>);

#[async_trait]
impl<O: Opens + 'static> Subject for Opened<O> {
    fn name(&self) -> String {
        self.0.scheme.to_string()
    }

    fn info(&self) -> StoreInfo {
        self.0.clone()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        panic!("holders are told where the store is")
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        O::open(&url.parse()?, context).await
    }
}

fn impatient(server: &impl Located) -> String {
    format!("{}/?timeout=300ms", server.location())
}

async fn half_a_lease<P: Paused>() {
    let server = P::start();
    let clinch = P::clinch(&impatient(&server)).await;
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

async fn two_leases<P: Paused>() {
    let server = P::start();
    let one = P::clinch(&impatient(&server)).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let began = one.clock().now();
    server.pause().unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Unrenewed);
    assert!(!guard.is_valid());
    let left = (LEASE * 2).saturating_sub(one.clock().now().since(began));
    pass(left).await;
    server.resume().unwrap();
    let two = P::clinch(&server.location()).await;
    let next = soon("the lock", two.lock("a").lease(LONG).acquire())
        .await
        .unwrap();
    assert!(number(&next) > number(&guard));
    // What the first client had still under way does no harm.
    pass(LEASE).await;
    assert!(next.is_valid() && !guard.is_valid());
    assert_eq!(guard.status(), Status::Lost(LostReason::Unrenewed));
    assert_eq!(Client::<P>::at(&server).await.holders("a").await, 1);
    assert!(two.check(&next.sequencer()).await.unwrap().is_current());
}

/// A holder and two waiters, all cut off at once: in the end each waiter has its turn, alone.
async fn two_leases_with_waiters<P: Paused>() {
    let server = P::start();
    let one = P::clinch(&impatient(&server)).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=2 {
        let other = P::clinch(&impatient(&server)).await;
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

async fn paused_holder<P: Paused>() {
    let server = P::start();
    let me = P::clinch(&server.location()).await;
    let mut child = Holder::spawn(P::info().scheme, &server.location(), "clinch").await;
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
async fn paused_waiter<P: Paused>() {
    let server = P::start();
    let me = P::clinch(&server.location()).await;
    let first = me.lock("a").lease(LONG).acquire().await.unwrap();
    let mut child = Holder::spawn(P::info().scheme, &server.location(), "clinch").await;
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
