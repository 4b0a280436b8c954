//! The client.

use std::sync::Arc;
use std::time::Duration;

use super::{Election, Lock, MultiLock, Owner, RwLock, Semaphore};
use crate::engine::{Engine, HandOver, Settings};
use crate::memory::MemoryStore;
use crate::store::{Admin, Events, Evicted, Finding, Freshness, LockView, OpenContext, StoreInfo};
use crate::{ClientId, Clock, Name, Result, Sequencer, Token};

/// A client of one store: where every lock begins. Cloning is cheap and shares the session.
///
/// ```
/// # clinch::blocking::block_on(async {
/// let clinch = clinch::Clinch::memory();
/// let guard = clinch.lock("orders/42").label("checkout").acquire().await?;
/// let seen = clinch.inspect("orders/42").await?.unwrap();
/// assert_eq!(seen.holders[0].label.as_deref(), Some("checkout"));
/// guard.release().await?;
/// clinch.close().await?;
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Clinch {
    engine: Arc<Engine>,
}

/// Makes a client of an opened store; `clinch::Connect` does it from a URL.
///
/// ```
/// use clinch::{Clinch, HandOver, store::memory::MemoryStore};
/// let context = Clinch::context("app").unwrap();
/// let store = std::sync::Arc::new(MemoryStore::new(context.clone()));
/// let clinch = Clinch::builder(store, context).hand_over(HandOver::OFF).build();
/// assert_eq!(clinch.info().scheme, "memory");
/// ```
#[derive(Debug)]
pub struct ClinchBuilder {
    store: Arc<dyn Admin>,
    context: OpenContext,
    settings: Settings,
    peers: Vec<StoreInfo>,
}

impl ClinchBuilder {
    /// The stores of this build. If a store lacks a capability, the error names those that have it.
    #[must_use]
    pub fn peers(mut self, peers: Vec<StoreInfo>) -> Self {
        self.peers = peers;
        self
    }

    /// How long claims and releases are retried while the store cannot be reached; 10 s by default.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::{Clinch, ErrorKind, store::memory::MemoryStore};
    /// use std::{sync::Arc, time::Duration};
    /// let context = Clinch::context("app")?;
    /// let store = Arc::new(MemoryStore::new(context.clone()));
    /// let builder = Clinch::builder(store.clone(), context);
    /// let clinch = builder.patience(Duration::from_millis(30)).build();
    /// store.faults().cut(true); // no request arrives any more
    /// let error = clinch.lock("a").acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unreachable);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
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
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// let (a, b) = (clinch::Clinch::memory(), clinch::Clinch::memory());
    /// let guard = a.lock("orders/42").acquire().await?;
    /// assert!(b.lock("orders/42").try_acquire().await?.is_some()); // another store
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn memory() -> Self {
        let context = OpenContext::new("clinch");
        Self::builder(Arc::new(MemoryStore::new(context.clone())), context).build()
    }

    /// What a store is opened with: a checked namespace, a new identity, the boot clock.
    ///
    /// ```
    /// use clinch::Clinch;
    /// assert_eq!(&*Clinch::context("billing").unwrap().namespace, "billing");
    /// assert!(Clinch::context("no spaces").is_err());
    /// ```
    pub fn context(namespace: &str) -> Result<OpenContext> {
        crate::check_namespace(namespace)?;
        Ok(OpenContext::new(namespace))
    }

    /// A client of an opened store. `context` is the one that the store was opened with.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::{Clinch, store::memory::MemoryStore};
    /// use std::sync::Arc;
    /// let (mine, theirs) = (Clinch::context("app")?, Clinch::context("app")?);
    /// let store = MemoryStore::new(mine.clone());
    /// let other = Clinch::builder(Arc::new(store.sibling(theirs.clone())), theirs).build();
    /// let clinch = Clinch::builder(Arc::new(store), mine).build();
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert!(other.lock("a").try_acquire().await?.is_none()); // two clients, one store
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn builder(store: Arc<dyn Admin>, context: OpenContext) -> ClinchBuilder {
        ClinchBuilder {
            store,
            context,
            settings: Settings::default(),
            peers: Vec::new(),
        }
    }

    /// A mutex.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::ErrorKind;
    /// let guard = clinch.lock(format!("orders/{}", 42)).acquire().await?;
    /// assert_eq!(guard.name().as_str(), "orders/42");
    /// let nameless = clinch.lock("").acquire().await; // reports a bad name
    /// assert_eq!(nameless.unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), Name::new(name), 1, 1)
    }

    /// A read-write lock.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.engine.clone(), Name::new(name))
    }

    /// A semaphore with `limit` permits in all.
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
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let a = clinch.lock("orders/1").acquire().await?;
    /// let b = clinch.lock("invoices/1").acquire().await?;
    /// let seen = clinch.list("orders/").await?;
    /// assert_eq!(seen.len(), 1);
    /// assert_eq!(&seen[0].name, a.name());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.engine.check_open()?;
        self.engine.store.list(prefix).await
    }

    /// One name in full; `None` if it has neither holders nor waiters. Every store can do this, even
    /// one that cannot list its names.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// assert!(clinch.inspect("orders/42").await?.is_none());
    /// let guard = clinch.lock("orders/42").acquire().await?;
    /// let seen = clinch.inspect("orders/42").await?.unwrap();
    /// assert_eq!(seen.holders[0].token, Some(guard.token()));
    /// assert!(seen.waiters.is_empty());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn inspect(&self, name: &str) -> Result<Option<LockView>> {
        self.engine.check_open()?;
        self.engine.store.inspect(&Name::new(name)?).await
    }

    /// Events of names that start with `prefix`, from now on.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::EventKind;
    /// let mut events = clinch.events("orders/").await?;
    /// let guard = clinch.lock("orders/42").acquire().await?;
    /// let event = events.next().await.unwrap();
    /// assert_eq!((event.kind, event.token), (EventKind::Granted, Some(guard.token())));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn events(&self, prefix: &str) -> Result<Events> {
        self.engine.check_open()?;
        self.engine.store.events(prefix).await
    }

    /// Whether the hold behind a sequencer is still current, according to the store.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let guard = clinch.lock("orders/42").acquire().await?;
    /// let text = guard.sequencer().to_string(); // sent along with a request
    /// assert!(clinch.check(&text.parse()?).await?.is_current());
    /// guard.release().await?;
    /// assert!(!clinch.check(&text.parse()?).await?.is_current());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn check(&self, sequencer: &Sequencer) -> Result<Freshness> {
        self.engine.check_open()?;
        self.engine
            .store
            .check(sequencer.name(), sequencer.token().seq())
            .await
    }

    /// Breaks the hold with this token, or every hold of the name: an operator's last resort. The
    /// holder's guard is lost with the next renewal; its lock-delay applies.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::{LostReason, Status};
    /// let stuck = clinch.lock("orders/42").acquire().await?;
    /// clinch.evict("orders/42", Some(stuck.token())).await?;
    /// assert_eq!(stuck.status(), Status::Lost(LostReason::Evicted));
    /// assert!(clinch.lock("orders/42").try_acquire().await?.is_some());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn evict(&self, name: &str, token: Option<Token>) -> Result<Evicted> {
        self.engine.check_open()?;
        let name = Name::new(name)?;
        let evicted = self
            .engine
            .store
            .evict(&name, token.map(Token::seq))
            .await?;
        self.engine.lose_evicted(&name, &evicted.seqs);
        Ok(evicted)
    }

    /// Settings of the store that would break a guarantee.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::Severity;
    /// let findings = clinch.doctor().await?;
    /// assert!(findings.iter().all(|finding| finding.severity < Severity::Broken));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        self.engine.check_open()?;
        self.engine.store.doctor().await
    }

    /// The store's capabilities, limits and guarantees.
    pub fn info(&self) -> &StoreInfo {
        self.engine.store.info()
    }

    /// The store itself, for tools: with the checks of core, and without the engine's queues, renewals
    /// and retries.
    pub fn store(&self) -> &Arc<dyn Admin> {
        &self.engine.store
    }

    /// Requests (or transactions) that this client has sent to its store so far.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let before = clinch.operations();
    /// clinch.lock("a").acquire().await?.release().await?;
    /// assert_eq!(clinch.operations() - before, 2); // a claim and a release
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn operations(&self) -> u64 {
        self.engine.operations.count()
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The clock that deadlines are read from.
    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// This client's id.
    pub fn client_id(&self) -> ClientId {
        self.engine.identity.info().id
    }

    /// Releases every hold, fails every wait, and ends the session. Remaining guards are lost with
    /// [`LostReason::Closed`](crate::LostReason). A claim under way is withdrawn, even if its future
    /// is not polled any more; if it still yields a guard, that guard is lost from the start.
    ///
    /// In a forked child it does nothing: the session belongs to the parent.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::{ErrorKind, LostReason, Status};
    /// let guard = clinch.lock("a").acquire().await?;
    /// clinch.close().await?;
    /// assert_eq!(guard.status(), Status::Lost(LostReason::Closed));
    /// assert_eq!(clinch.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn close(&self) -> Result<()> {
        self.engine.close().await
    }
}
