//! The blocking client.

use super::{Election, Events, Lock, MultiLock, RwLock, Semaphore, block_on};
use crate::store::{Evicted, Finding, Freshness, LockView, StoreInfo};
use crate::{ClientId, Clock, Owner, Result, Sequencer, Token};

/// The blocking twin of [`Clinch`](crate::Clinch).
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let both = clinch.all(["a", "b"]).acquire()?;
/// assert_eq!(clinch.list("")?.len(), 2);
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Clinch(crate::Clinch);

impl From<crate::Clinch> for Clinch {
    fn from(clinch: crate::Clinch) -> Self {
        Self(clinch)
    }
}

impl Clinch {
    /// A client of a private [memory store](crate::memory).
    pub fn memory() -> Self {
        Self(crate::Clinch::memory())
    }

    /// A mutex.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// A read-write lock.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(name))
    }

    /// A semaphore with `limit` permits in all.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, limit))
    }

    /// Several mutexes, all or nothing.
    pub fn all<I>(&self, names: I) -> MultiLock
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        MultiLock(self.0.all(names))
    }

    /// A leader election.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.election(name))
    }

    /// A new owner, for reentrancy.
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// The names in use that start with `prefix`, with holders and waiters.
    pub fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        block_on(self.0.list(prefix))
    }

    /// One name in full; `None` if it has neither holders nor waiters.
    pub fn inspect(&self, name: &str) -> Result<Option<LockView>> {
        block_on(self.0.inspect(name))
    }

    /// Events of names that start with `prefix`, from now on.
    pub fn events(&self, prefix: &str) -> Result<Events> {
        block_on(self.0.events(prefix)).map(Events)
    }

    /// Whether the hold behind a sequencer is still current, according to the store.
    pub fn check(&self, sequencer: &Sequencer) -> Result<Freshness> {
        block_on(self.0.check(sequencer))
    }

    /// Breaks the hold with this token, or every hold of the name.
    pub fn evict(&self, name: &str, token: Option<Token>) -> Result<Evicted> {
        block_on(self.0.evict(name, token))
    }

    /// Settings of the store that would break a guarantee.
    pub fn doctor(&self) -> Result<Vec<Finding>> {
        block_on(self.0.doctor())
    }

    /// The store's capabilities, limits and guarantees.
    pub fn info(&self) -> &StoreInfo {
        self.0.info()
    }

    /// The clock that deadlines are read from.
    pub fn clock(&self) -> &Clock {
        self.0.clock()
    }

    /// This client's id.
    pub fn client_id(&self) -> ClientId {
        self.0.client_id()
    }

    /// Releases every hold, fails every wait, and ends the session.
    pub fn close(&self) -> Result<()> {
        block_on(self.0.close())
    }

    /// The async client.
    pub fn as_async(&self) -> &crate::Clinch {
        &self.0
    }
}
