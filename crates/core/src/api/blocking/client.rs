//! The blocking client.

use super::{Election, Lock, MultiLock, RwLock, Semaphore, block_on};
use crate::store::{Evicted, Finding, Freshness, LockView, StoreInfo};
use crate::{Owner, Result, Sequencer, Token};

/// The blocking twin of [`Clinch`](crate::Clinch).
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let both = clinch.all(["a", "b"]).acquire()?;
/// assert_eq!(clinch.list("")?.len(), 2);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Clinch(crate::Clinch);

impl From<crate::Clinch> for Clinch {
    fn from(clinch: crate::Clinch) -> Self {
        Self(clinch)
    }
}

impl Clinch {
    /// A mutex.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// A read-write lock.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(name))
    }

    /// A semaphore with so many permits in all.
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

    /// One name in full; `None` when nobody holds or waits.
    pub fn inspect(&self, name: &str) -> Result<Option<LockView>> {
        block_on(self.0.inspect(name))
    }

    /// Whether the hold behind a sequencer is still current, by the store's word.
    pub fn check(&self, sequencer: &Sequencer) -> Result<Freshness> {
        block_on(self.0.check(sequencer))
    }

    /// Breaks the hold with this token, or every hold of the name.
    pub fn evict(&self, name: &str, token: Option<Token>) -> Result<Evicted> {
        block_on(self.0.evict(name, token))
    }

    /// Settings of the store that would break a promise.
    pub fn doctor(&self) -> Result<Vec<Finding>> {
        block_on(self.0.doctor())
    }

    /// What the store is, can and promises.
    pub fn info(&self) -> &StoreInfo {
        self.0.info()
    }

    /// Releases everything and ends the session.
    pub fn close(&self) -> Result<()> {
        block_on(self.0.close())
    }

    /// The async client.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
    /// use clinch_core::blocking::block_on;
    /// let mut events = block_on(clinch.as_async().events(""))?; // has no blocking twin
    /// let guard = clinch.lock("a").acquire()?;
    /// assert_eq!(block_on(events.next()).unwrap().token, Some(guard.token()));
    /// # Ok(()) }
    /// ```
    pub fn as_async(&self) -> &crate::Clinch {
        &self.0
    }
}
