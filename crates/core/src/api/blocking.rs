//! The same locks for synchronous code.
//!
//! Each type wraps its async twin and waits for it on the calling thread; no runtime is needed.
//! A blocking guard that is dropped has been released when `drop` returns.
//!
//! ```
//! use clinch_core::blocking::Clinch;
//! # fn main() -> clinch_core::Result<()> {
//! let clinch = Clinch::from(clinch_core::Clinch::memory());
//! let guard = clinch.lock("orders/42").acquire()?;
//! assert!(guard.is_valid());
//! drop(guard);
//! assert!(clinch.list("")?.is_empty());
//! # Ok(()) }
//! ```

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::engine::Status;
use crate::store::{Evicted, Freshness, LockView, Predecessor, ReleaseReply, StoreInfo};
use crate::{LostReason, Name, Owner, OwnerId, Result, Sequencer, Token};

/// Runs a future on this thread to its end.
///
/// ```
/// assert_eq!(clinch_core::blocking::block_on(async { 1 + 1 }), 2);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The blocking twin of [`Clinch`](crate::Clinch).
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

    /// The read side and the write side of a read-write lock.
    pub fn rwlock(&self, name: impl AsRef<str>) -> (Lock, Lock) {
        let lock = self.0.rwlock(name);
        (Lock(lock.read()), Lock(lock.write()))
    }

    /// So many permits of a semaphore.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32, limit: u32) -> Lock {
        Lock(self.0.semaphore(name, limit).permits(permits))
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

    /// The names in use that start with `prefix`.
    pub fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        block_on(self.0.list(prefix))
    }

    /// One name in full.
    pub fn inspect(&self, name: &str) -> Result<Option<LockView>> {
        block_on(self.0.inspect(name))
    }

    /// Whether the hold behind a sequencer is still current.
    pub fn check(&self, sequencer: &Sequencer) -> Result<Freshness> {
        block_on(self.0.check(sequencer))
    }

    /// Breaks a hold.
    pub fn evict(&self, name: &str, token: Option<Token>) -> Result<Evicted> {
        block_on(self.0.evict(name, token))
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
    pub fn inner(&self) -> &crate::Clinch {
        &self.0
    }
}

thread_local! {
    static THREAD: OnceCell<Owner> = const { OnceCell::new() };
}

/// The blocking twin of [`Lock`](crate::Lock): the same options, fairness and guarantees.
#[derive(Debug, Clone)]
pub struct Lock(crate::Lock);

impl Lock {
    /// See [`Lock::lease`](crate::Lock::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// See [`Lock::lock_delay`](crate::Lock::lock_delay).
    #[must_use]
    pub fn lock_delay(self, delay: Duration) -> Self {
        Self(self.0.lock_delay(delay))
    }

    /// See [`Lock::max_hold`](crate::Lock::max_hold).
    #[must_use]
    pub fn max_hold(self, span: Duration) -> Self {
        Self(self.0.max_hold(span))
    }

    /// See [`Lock::fair`](crate::Lock::fair).
    #[must_use]
    pub fn fair(self) -> Self {
        Self(self.0.fair())
    }

    /// See [`Lock::label`](crate::Lock::label).
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        Self(self.0.label(label))
    }

    /// See [`Lock::as_owner`](crate::Lock::as_owner).
    #[must_use]
    pub fn as_owner(self, owner: &Owner) -> Self {
        Self(self.0.as_owner(owner))
    }

    /// Claims as the calling thread: it may enter again what it holds.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
    /// let lock = clinch.lock("a").as_thread();
    /// let outer = lock.acquire()?;
    /// let inner = lock.acquire()?;
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn as_thread(self) -> Self {
        THREAD.with(|owner| self.as_owner(owner.get_or_init(Owner::new)))
    }

    /// Waits until it is held.
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard::new)
    }

    /// Takes it if it is free now.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard::new))
    }

    /// Waits for so long.
    pub fn acquire_within(&self, span: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.acquire_within(span))?.map(Guard::new))
    }
}

/// The blocking twin of [`Guard`](crate::Guard): released when `drop` returns.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    /// `None` only while it is released.
    guard: Option<crate::Guard>,
    token: Token,
}

impl Guard {
    fn new(guard: crate::Guard) -> Self {
        let token = guard.token();
        Self {
            guard: Some(guard),
            token,
        }
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lock's name.
    pub fn name(&self) -> Option<&Name> {
        self.guard.as_ref().map(crate::Guard::name)
    }

    /// Who holds it.
    pub fn owner(&self) -> Option<&OwnerId> {
        self.guard.as_ref().map(crate::Guard::owner)
    }

    /// Whether it is held at this moment, by a look at the clock alone.
    pub fn is_valid(&self) -> bool {
        self.guard.as_ref().is_some_and(crate::Guard::is_valid)
    }

    /// Held, held but not renewed lately, or lost.
    pub fn status(&self) -> Status {
        match &self.guard {
            Some(guard) => guard.status(),
            None => Status::Lost(LostReason::Released),
        }
    }

    /// How long it stays valid without another renewal.
    pub fn remaining(&self) -> Duration {
        self.guard
            .as_ref()
            .map_or(Duration::ZERO, crate::Guard::remaining)
    }

    /// How the hold before this one ended.
    pub fn predecessor(&self) -> Option<&Predecessor> {
        self.guard.as_ref().and_then(crate::Guard::predecessor)
    }

    /// Name, mode and token as one printable string.
    pub fn sequencer(&self) -> Option<Sequencer> {
        self.guard.as_ref().map(crate::Guard::sequencer)
    }

    /// Blocks until it is lost.
    pub fn lost(&self) -> LostReason {
        match &self.guard {
            Some(guard) => block_on(guard.lost()),
            None => LostReason::Released,
        }
    }

    /// Gives it up and says whether it was still held.
    pub fn release(mut self) -> Result<ReleaseReply> {
        match self.guard.take() {
            Some(guard) => block_on(guard.release()),
            None => Ok(ReleaseReply::WasLost(LostReason::Released)),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take()
            && let Err(error) = block_on(guard.release())
        {
            tracing::warn!(%error, "a release goes on in the background");
        }
    }
}

/// The blocking twin of [`MultiLock`](crate::MultiLock).
#[derive(Debug, Clone)]
pub struct MultiLock(crate::MultiLock);

impl MultiLock {
    /// See [`MultiLock::lease`](crate::MultiLock::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// Waits until all are held.
    pub fn acquire(&self) -> Result<MultiGuard> {
        block_on(self.0.acquire()).map(|guard| MultiGuard(Some(guard)))
    }

    /// Takes all of them if all are free now.
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        Ok(block_on(self.0.try_acquire())?.map(|guard| MultiGuard(Some(guard))))
    }

    /// Waits for so long until all are held.
    pub fn acquire_within(&self, span: Duration) -> Result<Option<MultiGuard>> {
        Ok(block_on(self.0.acquire_within(span))?.map(|guard| MultiGuard(Some(guard))))
    }
}

/// The blocking twin of [`MultiGuard`](crate::MultiGuard): released when `drop` returns.
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard(Option<crate::MultiGuard>);

impl MultiGuard {
    /// Whether every one is held at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_some_and(crate::MultiGuard::is_valid)
    }

    /// The tokens, by name.
    pub fn tokens(&self) -> Vec<(Name, Token)> {
        let guards = self.0.as_ref().map_or(&[][..], |multi| multi.guards());
        guards
            .iter()
            .map(|guard| (guard.name().clone(), guard.token()))
            .collect()
    }

    /// Releases all and says of each whether it was still held.
    pub fn release(mut self) -> Result<Vec<ReleaseReply>> {
        match self.0.take() {
            Some(guard) => block_on(guard.release()),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take()
            && let Err(error) = block_on(guard.release())
        {
            tracing::warn!(%error, "a release goes on in the background");
        }
    }
}

/// The blocking twin of [`Election`](crate::Election).
#[derive(Debug, Clone)]
pub struct Election(crate::Election);

impl Election {
    /// Stands as a candidate and waits to lead.
    pub fn campaign(&self, value: impl Into<Arc<str>>) -> Result<crate::Leader> {
        block_on(self.0.campaign(value))
    }

    /// Leads if nobody does.
    pub fn try_campaign(&self, value: impl Into<Arc<str>>) -> Result<Option<crate::Leader>> {
        block_on(self.0.try_campaign(value))
    }

    /// Who leads now.
    pub fn leader(&self) -> Result<Option<crate::LeaderView>> {
        block_on(self.0.leader())
    }
}
