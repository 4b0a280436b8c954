//! Semaphores.

use std::sync::Arc;
use std::time::Duration;

use super::{Guard, Lock};
use crate::engine::Engine;
use crate::{Error, Name, Result};

/// A semaphore: at most `limit` permits are held at once.
///
/// Each permit has its own lease and token, so a crashed holder's permits come back. The limit is
/// part of the claim: a different one for a name in use is a `Mismatch`, never "last writer wins".
///
/// # Fairness
///
/// FIFO at the store; a claim of many permits is not overtaken by smaller ones behind it.
///
/// # Cancel safety
///
/// As for [`Lock`].
///
/// # Guarantees
///
/// The permits of all valid guards never exceed the limit, under the conditions of [`Lock`].
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let workers = clinch.semaphore("workers", 3);
/// let one = workers.acquire().await?;
/// let two = workers.permits(2).acquire().await?;
/// assert!(workers.try_acquire().await?.is_none());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    engine: Arc<Engine>,
    name: Result<Name>,
    limit: u32,
}

impl Semaphore {
    pub(super) fn new(engine: Arc<Engine>, name: Result<Name>, limit: u32) -> Self {
        // The largest number means "read-write lock".
        let name = match limit {
            u32::MAX => Err(
                Error::invalid(format!("a semaphore of {limit} is too large"))
                    .with_advice(format!("the most is {}", u32::MAX - 1)),
            ),
            _ => name,
        };
        Self {
            engine,
            name,
            limit,
        }
    }

    /// So many permits at once.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use clinch_core::ErrorKind;
    /// let workers = clinch.semaphore("workers", 3);
    /// let two = workers.permits(2).label("import").acquire().await?;
    /// assert!(workers.permits(2).try_acquire().await?.is_none()); // one is left
    /// assert_eq!(workers.permits(4).acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn permits(&self, permits: u32) -> Lock {
        Lock::new(self.engine.clone(), self.name.clone(), permits, self.limit)
    }

    /// Waits for one permit.
    pub async fn acquire(&self) -> Result<Guard> {
        self.permits(1).acquire().await
    }

    /// Takes one permit if there is one now.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permits(1).try_acquire().await
    }

    /// Waits for one permit for so long.
    pub async fn acquire_within(&self, span: Duration) -> Result<Option<Guard>> {
        self.permits(1).acquire_within(span).await
    }
}
