//! Several names, all or nothing.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::options::{Options, option_setters};
use super::{Guard, Lock, Owner};
use crate::engine::Engine;
use crate::store::ReleaseReply;
use crate::{BootTime, Error, ErrorKind, LostReason, Name, Result};

/// Several mutexes at once: all of them or none.
///
/// Names are taken in sorted order whatever order they were given in, so two multi-locks over the
/// same names never wait for each other in a circle. A name that is given twice counts once.
///
/// # Fairness
///
/// That of [`Lock`], name by name.
///
/// # Cancel safety
///
/// Dropped while it waits, everything that it had taken is released.
///
/// # Guarantees
///
/// A [`MultiGuard`] was valid for all names at the moment it was returned; it is valid as long as
/// each of them is.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let both = clinch.all(["accounts/b", "accounts/a"]).acquire().await?;
/// assert_eq!(both.guards()[0].name().as_str(), "accounts/a");
/// both.release().await?;
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    engine: Arc<Engine>,
    names: Result<Vec<Name>>,
    options: Options,
}

impl MultiLock {
    pub(super) fn new<I>(engine: Arc<Engine>, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let names: Result<BTreeSet<Name>> = names.into_iter().map(Name::new).collect();
        let names = names.and_then(|names| match names.is_empty() {
            true => {
                Err(Error::invalid("a multi-lock has no names").with_advice("give it one at least"))
            }
            false => Ok(names.into_iter().collect()),
        });
        Self {
            engine,
            names,
            options: Options::default(),
        }
    }

    option_setters!();

    /// Claims as this owner; see [`Lock::as_owner`].
    #[must_use]
    pub fn as_owner(mut self, owner: &Owner) -> Self {
        self.options.owner = Some(owner.clone());
        self
    }

    /// Waits until all are held.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        match self.take(Patience::Forever).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::new(
                ErrorKind::Internal,
                "a wait without end has ended",
            )),
        }
    }

    /// Takes all of them if all are free now.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let taken = clinch.lock("b").acquire().await?;
    /// assert!(clinch.all(["a", "b"]).try_acquire().await?.is_none());
    /// assert!(clinch.inspect("a").await?.is_none()); // nothing is kept of the half
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        self.take(Patience::None).await
    }

    /// Waits for so long until all are held.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use std::time::Duration;
    /// let taken = clinch.lock("b").acquire().await?;
    /// let both = clinch.all(["a", "b"]).acquire_within(Duration::from_millis(10)).await?;
    /// assert!(both.is_none() && clinch.inspect("a").await?.is_none());
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn acquire_within(&self, span: Duration) -> Result<Option<MultiGuard>> {
        self.take(Patience::Until(self.engine.clock.now() + span))
            .await
    }

    async fn take(&self, patience: Patience) -> Result<Option<MultiGuard>> {
        let names = self.names.clone()?;
        // Dropping this part way, by an error or by the caller, releases what it has.
        let mut held = MultiGuard {
            guards: Vec::with_capacity(names.len()),
        };
        for name in names {
            let lock = Lock::new(self.engine.clone(), Ok(name), 1, 1);
            let lock = lock.with_options(self.options.clone());
            let guard = match patience {
                Patience::None => lock.try_acquire().await,
                Patience::Forever => lock.claim_until(None).await,
                Patience::Until(deadline) => lock.claim_until(Some(deadline)).await,
            };
            match guard {
                Ok(Some(guard)) => held.guards.push(guard),
                Ok(None) => return held.give_back().await.map(|()| None),
                Err(error) => {
                    // The first error is the one to tell; what is held goes back either way.
                    let _ = held.give_back().await;
                    return Err(error);
                }
            }
        }
        if let Some(guard) = held.guards.iter().find(|guard| !guard.is_valid()) {
            let name = guard.name().to_string();
            let _ = held.give_back().await;
            return Err(Error::new(
                ErrorKind::Lost,
                "it was lost while the others were waited for",
            )
            .with_store(self.engine.scheme())
            .with_name(name)
            .with_advice("choose a longer lease, or fewer names"));
        }
        Ok(Some(held))
    }
}

#[derive(Debug, Clone, Copy)]
enum Patience {
    None,
    Until(BootTime),
    Forever,
}

/// All the locks of a [`MultiLock`]. Dropping it releases them in the background.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let both = clinch.all(["a", "b"]).acquire().await?;
/// assert!(both.is_valid());
/// clinch.evict("b", None).await?;
/// assert!(!both.is_valid() && both.guards()[0].is_valid());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The single guards, by name.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether every one is held at this moment.
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// How long all of them stay valid without another renewal.
    pub fn remaining(&self) -> Duration {
        self.guards
            .iter()
            .map(Guard::remaining)
            .min()
            .unwrap_or_default()
    }

    /// Completes when the first of them is lost. Cancel safe.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// clinch.evict("b", None).await?;
    /// let (name, reason) = both.lost().await;
    /// assert_eq!((name.as_str(), reason), ("b", clinch_core::LostReason::Evicted));
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn lost(&self) -> (Name, LostReason) {
        let mut waits: Vec<_> = self
            .guards
            .iter()
            .map(|guard| (guard, Box::pin(guard.lost())))
            .collect();
        std::future::poll_fn(move |cx| {
            for (guard, lost) in &mut waits {
                if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                    return Poll::Ready((guard.name().clone(), reason));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Releases all, last name first, and says of each whether it was still held, by name.
    ///
    /// On an error the rest is released in the background.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use clinch_core::{LostReason, ReleaseReply};
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// clinch.evict("b", None).await?;
    /// let evicted = ReleaseReply::WasLost(LostReason::Evicted);
    /// assert_eq!(both.release().await?, [ReleaseReply::Released, evicted]);
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn release(mut self) -> Result<Vec<ReleaseReply>> {
        let mut replies = Vec::with_capacity(self.guards.len());
        while let Some(guard) = self.guards.pop() {
            replies.push(guard.release().await?);
        }
        replies.reverse();
        Ok(replies)
    }

    /// Runs a future for as long as all are held.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// assert_eq!(both.run(async { 42 }).await, Ok(42));
    /// clinch.evict("b", None).await?;
    /// let (name, _) = both.run(std::future::pending::<()>()).await.unwrap_err();
    /// assert_eq!(name.as_str(), "b");
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, (Name, LostReason)> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    async fn give_back(self) -> Result<()> {
        self.release().await.map(drop)
    }
}
