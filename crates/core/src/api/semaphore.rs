//! Semaphores.

use std::sync::Arc;
use std::time::Duration;

use super::{Guard, Lock};
use crate::engine::Engine;
use crate::{Error, Name, Result};

/// A semaphore: at most `limit` permits are held at once.
///
/// Each permit has its own lease and token, so the permits of a crashed holder become free. The limit
/// is part of the claim: a different limit for a name in use is a `Mismatch` error.
///
/// # Fairness
///
/// FIFO at the store; a claim of many permits is not overtaken by later, smaller ones.
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
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let workers = clinch.semaphore("workers", 3);
/// let one = workers.acquire().await?;
/// let two = workers.permits(2).acquire().await?;
/// assert!(workers.try_acquire().await?.is_none());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
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
                    .with_advice(format!("the maximum is {}", u32::MAX - 1)),
            ),
            _ => name,
        };
        Self {
            engine,
            name,
            limit,
        }
    }

    /// Several permits at once.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::ErrorKind;
    /// let workers = clinch.semaphore("workers", 3);
    /// let two = workers.permits(2).label("import").acquire().await?;
    /// assert!(workers.permits(2).try_acquire().await?.is_none()); // one is left
    /// assert_eq!(workers.permits(4).acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn permits(&self, permits: u32) -> Lock {
        Lock::new(self.engine.clone(), self.name.clone(), permits, self.limit)
    }

    /// Waits for one permit.
    pub async fn acquire(&self) -> Result<Guard> {
        self.permits(1).acquire().await
    }

    /// Acquires one permit if one is free now.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permits(1).try_acquire().await
    }

    /// Waits at most `timeout` for one permit; `Ok(None)` if not granted by then.
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.permits(1).acquire_within(timeout).await
    }
}
