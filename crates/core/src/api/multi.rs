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
/// Names are acquired in sorted order, so two multi-locks over the same names cannot deadlock. A
/// duplicate name counts once.
///
/// # Fairness
///
/// That of [`Lock`], name by name.
///
/// # Cancel safety
///
/// If it is dropped while it waits, the locks acquired so far are released.
///
/// # Guarantees
///
/// A [`MultiGuard`] was valid for all names at the moment it was returned; it is valid as long as
/// each of them is.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let both = clinch.all(["accounts/b", "accounts/a"]).acquire().await?;
/// assert_eq!(both.guards()[0].name().as_str(), "accounts/a");
/// both.release().await?;
/// # Ok::<_, clinch::Error>(()) }).unwrap();
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
                Err(Error::invalid("a multi-lock has no names").with_advice("give at least one"))
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

    /// Acquires all of them if all are free now.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let taken = clinch.lock("b").acquire().await?;
    /// assert!(clinch.all(["a", "b"]).try_acquire().await?.is_none());
    /// assert!(clinch.inspect("a").await?.is_none()); // nothing is held
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        self.take(Patience::None).await
    }

    /// Waits at most `timeout` until all are held; `Ok(None)` if they are not by then.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use std::time::Duration;
    /// let taken = clinch.lock("b").acquire().await?;
    /// let both = clinch.all(["a", "b"]).acquire_within(Duration::from_millis(10)).await?;
    /// assert!(both.is_none() && clinch.inspect("a").await?.is_none());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<MultiGuard>> {
        self.take(Patience::Until(self.engine.clock.now() + timeout))
            .await
    }

    async fn take(&self, patience: Patience) -> Result<Option<MultiGuard>> {
        let names = self.names.clone()?;
        // Dropping this, after an error or by the caller, releases what it holds.
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
                    // Report the first error; what is held is released either way.
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
                "the lock was lost while waiting for the others",
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
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let both = clinch.all(["a", "b"]).acquire().await?;
/// assert!(both.is_valid());
/// clinch.evict("b", None).await?;
/// assert!(!both.is_valid() && both.guards()[0].is_valid());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
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
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// clinch.evict("b", None).await?;
    /// let (name, reason) = both.lost().await;
    /// assert_eq!((name.as_str(), reason), ("b", clinch::LostReason::Evicted));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn lost(&self) -> (Name, LostReason) {
        let (guard, reason) = self.first_lost().await;
        (guard.name().clone(), reason)
    }

    async fn first_lost(&self) -> (&Guard, LostReason) {
        let mut waits: Vec<_> = self
            .guards
            .iter()
            .map(|guard| (guard, Box::pin(guard.lost())))
            .collect();
        std::future::poll_fn(move |cx| {
            for (guard, lost) in &mut waits {
                if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                    return Poll::Ready((*guard, reason));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Releases all, last name first. The replies are in the order of the names.
    ///
    /// On an error the rest is released in the background.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::{LostReason, ReleaseReply};
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// clinch.evict("b", None).await?;
    /// let evicted = ReleaseReply::WasLost(LostReason::Evicted);
    /// assert_eq!(both.release().await?, [ReleaseReply::Released, evicted]);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn release(mut self) -> Result<Vec<ReleaseReply>> {
        let mut replies = Vec::with_capacity(self.guards.len());
        while let Some(guard) = self.guards.pop() {
            replies.push(guard.release().await?);
        }
        replies.reverse();
        Ok(replies)
    }

    /// Runs work that can fail, while all are held; see [`Guard::run`].
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let both = clinch.all(["a", "b"]).acquire().await?;
    /// assert_eq!(both.run(async { Ok::<_, clinch::Error>(42) }).await?, 42);
    /// clinch.evict("b", None).await?;
    /// let lost = both.run(std::future::pending::<clinch::Result<()>>()).await;
    /// assert_eq!(lost.unwrap_err().name(), Some("b"));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F, T, E>(&self, work: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        tokio::select! {
            biased;
            (guard, reason) = self.first_lost() => Err(guard.lost_error(reason).into()),
            result = work => result,
        }
    }

    /// Runs any future while all are held; see [`Guard::run_until_lost`].
    pub async fn run_until_lost<F: Future>(
        &self,
        future: F,
    ) -> Result<F::Output, (Name, LostReason)> {
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
