//! The reference store: locks inside one process, with faults on demand.
//!
//! `memory:` is private to one client; `memory:NAME` is shared by all clients of the process that
//! give the same name. Tests compare other stores with it and make it misbehave with [`Faults`].
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use clinch_core::{Clinch, memory::{Fault, MemoryStore, Op}};
//! let context = Clinch::context("app")?;
//! let store = std::sync::Arc::new(MemoryStore::new(context.clone()));
//! let clinch = Clinch::builder(store.clone(), context).build();
//! store.faults().inject(Op::Claim, Fault::ReplyLost);
//! assert!(clinch.lock("a").acquire().await?.is_valid()); // asked again, with the same request id
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod faults;
mod world;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;

pub use faults::{Fault, Faults, Op};
use world::World;

use crate::store::{
    Admin, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Guarantees, Hold, Limits,
    LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Severity, Store, StoreInfo,
    Suspicion, SuspicionRegistry, Suspicions, Wakes,
};
use crate::{Name, Result, StoreUrl};

/// Locks inside one process.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("orders/42").acquire().await?;
/// assert!(clinch.lock("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    info: StoreInfo,
    context: OpenContext,
    world: Arc<Mutex<World>>,
    faults: Faults,
    suspicions: SuspicionRegistry,
}

/// Worlds by the name after `memory:`, for as long as a client has them open.
static SHARED: LazyLock<Mutex<HashMap<String, Weak<Mutex<World>>>>> = LazyLock::new(Mutex::default);

impl MemoryStore {
    /// A store of its own.
    pub fn new(context: OpenContext) -> Self {
        Self::on(context, Arc::default())
    }

    /// Opens `memory:` or `memory:NAME`.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// use clinch_core::{Clinch, memory::MemoryStore, store::Admin};
    /// let url = "memory:shared".parse()?;
    /// let a = MemoryStore::open(&url, Clinch::context("app")?)?;
    /// let context = Clinch::context("app")?;
    /// let b = std::sync::Arc::new(MemoryStore::open(&url, context.clone())?);
    /// let guard = Clinch::builder(b, context).build().lock("orders/42").acquire().await?;
    /// assert_eq!(a.list("").await?.len(), 1); // seen by the other client
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn open(url: &StoreUrl, context: OpenContext) -> Result<Self> {
        url.finish(&[])?;
        let path = url.path()?;
        if path.is_empty() {
            return Ok(Self::new(context));
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, world| world.strong_count() > 0);
        let world = shared
            .get(&path)
            .and_then(Weak::upgrade)
            .unwrap_or_default();
        shared.insert(path, Arc::downgrade(&world));
        Ok(Self::on(context, world))
    }

    /// Another client of the same locks, with faults of its own.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// use clinch_core::{Clinch, memory::MemoryStore, store::Admin};
    /// let a = MemoryStore::new(Clinch::context("app")?);
    /// let b = a.sibling(Clinch::context("app")?);
    /// a.faults().cut(true);
    /// assert!(a.list("").await.is_err() && b.list("").await.is_ok()); // only one is cut off
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    #[must_use]
    pub fn sibling(&self, context: OpenContext) -> Self {
        Self::on(context, self.world.clone())
    }

    /// What this store is, without opening it.
    ///
    /// ```
    /// let info = clinch_core::memory::MemoryStore::describe();
    /// assert_eq!(info.scheme, "memory");
    /// ```
    pub fn describe() -> StoreInfo {
        info()
    }

    fn on(context: OpenContext, world: Arc<Mutex<World>>) -> Self {
        Self {
            info: info(),
            context,
            world,
            faults: Faults::default(),
            suspicions: SuspicionRegistry::default(),
        }
    }

    /// Makes this client's requests fail on purpose.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Reports a suspicion about this client's holds, as a store does that has lost its connection.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// use clinch_core::memory::MemoryStore;
    /// use clinch_core::store::{Store, Suspicion};
    /// let store = MemoryStore::new(clinch_core::Clinch::context("app")?);
    /// let mut suspicions = store.suspicions();
    /// store.suspect(&Suspicion::All);
    /// assert_eq!(suspicions.next().await, Some(Suspicion::All));
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn suspect(&self, suspicion: &Suspicion) {
        self.suspicions.deliver(suspicion);
    }

    /// Remembers the end of a claim until this moment: a copy of it may arrive until then.
    #[cfg(test)]
    pub(crate) fn keep(&self, name: &Name, request: crate::RequestId, until: crate::BootTime) {
        let key = self.key(name);
        self.lock().on(&key, |name, _, _| name.keep(request, until));
    }

    /// Loses every claim and every remembered end, as a server restarted without its data does.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// use clinch_core::{Clinch, LostReason, ReleaseReply, memory::MemoryStore};
    /// let context = Clinch::context("app")?;
    /// let store = std::sync::Arc::new(MemoryStore::new(context.clone()));
    /// let guard = Clinch::builder(store.clone(), context).build().lock("a").acquire().await?;
    /// store.lose_data();
    /// assert_eq!(guard.release().await?, ReleaseReply::WasLost(LostReason::Forgotten));
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn lose_data(&self) {
        self.lock().forget_everything();
    }

    /// Applies `step` to the world as one atomic operation, with the faults that were asked for.
    async fn step<T>(&self, op: Op, step: impl FnOnce(&mut World) -> T + Send) -> Result<T> {
        self.context.operations.add(1);
        let fault = self.faults.take(op);
        if let Some(fault) = fault {
            let before = fault.before(&self.context.clock).await;
            before.map_err(|e| e.with_store("memory"))?;
        }
        let reply = {
            let mut world = self.lock();
            let reply = step(&mut world);
            world.deliver(self.faults.drops_wakes());
            reply
        };
        if let Some(fault) = fault {
            let after = fault.after(&self.context.clock).await;
            after.map_err(|e| e.with_store("memory"))?;
        }
        Ok(reply)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, name: &Name) -> world::Key {
        (self.context.namespace.clone(), name.clone())
    }
}

fn info() -> StoreInfo {
    let guarantees = Guarantees::new("tasks and threads of one process")
        .with_exclusion("always, while the process lives")
        .with_token_order("across clients and loss of data")
        .with_liveness("a dropped guard at once; a stuck client after its lease and lock-delay")
        .with_clock("CLOCK_BOOTTIME of the process");
    let limits = Limits::new(Duration::from_millis(10), Duration::from_secs(7 * 86_400))
        .with_lease_step(Duration::from_nanos(1));
    let summary = "reference store inside one process, for tests";
    StoreInfo::new("memory", summary, guarantees, limits)
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let (now, key) = (self.context.clock.now(), self.key(&claim.name));
        self.step(Op::Claim, |world| {
            world.on(&key, |name, sequence, out| {
                name.claim(claim, now, sequence, out)
            })
        })
        .await?
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.lock().waker(claim.request)
    }

    fn suspicions(&self) -> Suspicions {
        self.suspicions.register()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let now = self.context.clock.now();
        let poison = |renewal: &Renewal| self.faults.fails_batch_with(renewal.hold.name.as_str());
        if renewals.iter().any(poison) {
            return Err(faults::injected("the batch failed").with_store("memory"));
        }
        self.step(Op::Renew, |world| {
            let one = |renewal: &Renewal| {
                if self.faults.fails_renewal_of(renewal.hold.name.as_str()) {
                    return RenewReply::Unknown;
                }
                let key = self.key(&renewal.hold.name);
                world.on(&key, |name, sequence, out| {
                    name.renew(renewal, now, sequence, out)
                })
            };
            renewals.iter().map(one).collect()
        })
        .await
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let (now, key) = (self.context.clock.now(), self.key(&hold.name));
        self.step(Op::Release, |world| {
            world.on(&key, |name, sequence, out| {
                name.release(hold, now, sequence, out)
            })
        })
        .await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let (now, key) = (self.context.clock.now(), self.key(&claim.name));
        self.step(Op::Withdraw, |world| {
            world.on(&key, |name, sequence, out| {
                name.withdraw(claim, now, sequence, out)
            });
        })
        .await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let (now, key) = (self.context.clock.now(), self.key(name));
        self.step(Op::Read, |world| {
            world.on(&key, |name, _, _| name.check(seq, now))
        })
        .await
    }

    async fn close(&self) -> Result<()> {
        let (now, client) = (self.context.clock.now(), self.context.identity.info().id);
        let mut world = self.lock();
        world.client_closed(client, now);
        world.deliver(false);
        Ok(())
    }
}

#[async_trait]
impl Admin for MemoryStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (now, namespace) = (self.context.clock.now(), self.context.namespace.clone());
        self.step(Op::Read, |world| world.list(&namespace, prefix, now))
            .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let (now, key) = (self.context.clock.now(), self.key(name));
        self.step(Op::Read, |world| {
            world.on(&key, |name, _, _| name.view(now))
        })
        .await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        let namespace = self.context.namespace.clone();
        self.step(Op::Read, |world| world.watch(namespace, prefix))
            .await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let (now, key) = (self.context.clock.now(), self.key(name));
        self.step(Op::Evict, |world| {
            world.on(&key, |name, sequence, out| {
                name.evict(seq, now, sequence, out)
            })
        })
        .await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let text = "locks in memory exclude no other process";
        let finding = Finding::new(Severity::Warning, "scope", text);
        Ok(vec![
            finding.with_advice("use another store for anything but tests"),
        ])
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let (now, client) = (self.context.clock.now(), self.context.identity.info().id);
        let mut world = self.lock();
        world.client_closed(client, now);
        world.deliver(false);
    }
}
