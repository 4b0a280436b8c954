//! The client.

use std::sync::Arc;
use std::time::Duration;

use super::{Election, Lock, MultiLock, Owner, RwLock, Semaphore};
use crate::engine::{Engine, HandOver, Settings};
use crate::memory::MemoryStore;
use crate::store::{
    Capability, Events, Evicted, Finding, Freshness, LockView, OpenContext, Store, StoreInfo,
};
use crate::{ClientId, Clock, Identity, Name, Result, Sequencer, Token};

/// A client of one store: where every lock begins. Cloning is cheap and shares the session.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("orders/42").label("checkout").acquire().await?;
/// let seen = clinch.inspect("orders/42").await?.unwrap();
/// assert_eq!(seen.holders[0].label.as_deref(), Some("checkout"));
/// guard.release().await?;
/// clinch.close().await?;
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Clinch {
    engine: Arc<Engine>,
}

/// Puts a client together from an opened store; `clinch::Connect` does it from a URL.
///
/// ```
/// use clinch_core::{Clinch, HandOver, memory::MemoryStore};
/// let context = Clinch::context("app").unwrap();
/// let store = std::sync::Arc::new(MemoryStore::new(context.clone()));
/// let clinch = Clinch::builder(store, context).hand_over(HandOver::OFF).build();
/// assert_eq!(clinch.info().scheme, "memory");
/// ```
#[derive(Debug)]
pub struct ClinchBuilder {
    store: Arc<dyn Store>,
    context: OpenContext,
    settings: Settings,
    peers: Vec<StoreInfo>,
}

impl ClinchBuilder {
    /// The stores of this build: an error about something that this store cannot do names those
    /// that can.
    #[must_use]
    pub fn peers(mut self, peers: Vec<StoreInfo>) -> Self {
        self.peers = peers;
        self
    }

    /// For how long claims and releases go on while the store cannot be reached (10 s unless said).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// How holds pass between tasks of this process.
    #[must_use]
    pub fn hand_over(mut self, hand_over: HandOver) -> Self {
        self.settings.hand_over = hand_over;
        self
    }

    /// The client.
    pub fn build(self) -> Clinch {
        Clinch {
            engine: Engine::new(self.store, self.context, self.settings, self.peers),
        }
    }
}

impl Clinch {
    /// A client of a private [memory store](crate::memory).
    pub fn memory() -> Self {
        let context = OpenContext {
            namespace: Arc::from("clinch"),
            identity: Arc::new(Identity::new()),
            clock: Clock::boot(),
        };
        Self::builder(Arc::new(MemoryStore::new(context.clone())), context).build()
    }

    /// What a store is opened with: a checked namespace, a new identity, the boot clock.
    pub fn context(namespace: &str) -> Result<OpenContext> {
        crate::check_namespace(namespace)?;
        Ok(OpenContext {
            namespace: Arc::from(namespace),
            identity: Arc::new(Identity::new()),
            clock: Clock::boot(),
        })
    }

    /// A client of an opened store. `context` is the one that the store was opened with.
    pub fn builder(store: Arc<dyn Store>, context: OpenContext) -> ClinchBuilder {
        ClinchBuilder {
            store,
            context,
            settings: Settings::default(),
            peers: Vec::new(),
        }
    }

    /// A mutex.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), Name::new(name), 1, 1)
    }

    /// A read-write lock.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.engine.clone(), Name::new(name))
    }

    /// A semaphore with so many permits in all.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.engine.clone(), Name::new(name), limit)
    }

    /// Several mutexes, all or nothing.
    pub fn all<I>(&self, names: I) -> MultiLock
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        MultiLock::new(self.engine.clone(), names)
    }

    /// A leader election.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.engine.clone(), Name::new(name))
    }

    /// A new owner, for reentrancy.
    pub fn owner(&self) -> Owner {
        Owner::new()
    }

    /// The names in use that start with `prefix`, with holders and waiters.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.engine.check_open()?;
        self.engine.require(Capability::List)?;
        self.engine.store.list(prefix).await
    }

    /// One name in full; `None` when nobody holds or waits.
    pub async fn inspect(&self, name: &str) -> Result<Option<LockView>> {
        self.engine.check_open()?;
        self.engine.require(Capability::List)?;
        self.engine.store.inspect(&Name::new(name)?).await
    }

    /// What happens from now on to names that start with `prefix`.
    pub async fn events(&self, prefix: &str) -> Result<Events> {
        self.engine.check_open()?;
        self.engine.require(Capability::Events)?;
        self.engine.store.events(prefix).await
    }

    /// Whether the hold behind a sequencer is still current, by the store's word.
    pub async fn check(&self, sequencer: &Sequencer) -> Result<Freshness> {
        self.engine.check_open()?;
        self.engine.require(Capability::Tokens)?;
        self.engine
            .store
            .check(sequencer.name(), sequencer.token().seq())
            .await
    }

    /// Breaks the hold with this token, or every hold of the name: an operator's last resort. The
    /// holder learns of it; its lock-delay applies.
    pub async fn evict(&self, name: &str, token: Option<Token>) -> Result<Evicted> {
        self.engine.check_open()?;
        self.engine.require(Capability::Evict)?;
        let name = Name::new(name)?;
        let evicted = self
            .engine
            .store
            .evict(&name, token.map(Token::seq))
            .await?;
        self.engine.evicted(&name, &evicted.seqs);
        Ok(evicted)
    }

    /// Settings of the store that would break a promise.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        self.engine.check_open()?;
        self.engine.store.doctor().await
    }

    /// What the store is, can and promises.
    pub fn info(&self) -> &StoreInfo {
        self.engine.store.info()
    }

    /// The store itself, for tools.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }

    /// The clock that deadlines are read from.
    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// This client's id.
    pub fn client_id(&self) -> ClientId {
        self.engine.identity.info().id
    }

    /// Releases everything, fails what waits, and ends the session. Guards that are left are lost
    /// with [`LostReason::Closed`](crate::LostReason).
    pub async fn close(&self) -> Result<()> {
        self.engine.close().await
    }
}
