//! Read-write locks.

use std::sync::Arc;

use super::Lock;
use crate::engine::Engine;
use crate::{Name, Result};

/// A read-write lock: many readers, or one writer.
///
/// # Fairness
///
/// FIFO at the store: a waiting writer blocks later readers, so it never starves.
///
/// # Cancel safety
///
/// As for [`Lock`].
///
/// # Guarantees
///
/// As for [`Lock`]; each reader has its own lease and its own token. An [owner](crate::Owner) that
/// holds the write lock may also read; one that holds the read lock is refused the write lock.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let config = clinch.rwlock("config");
/// let a = config.read().acquire().await?;
/// let b = config.read().acquire().await?;
/// assert!(config.write().try_acquire().await?.is_none());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    engine: Arc<Engine>,
    name: Result<Name>,
}

impl RwLock {
    pub(super) fn new(engine: Arc<Engine>, name: Result<Name>) -> Self {
        Self { engine, name }
    }

    /// The shared side.
    pub fn read(&self) -> Lock {
        Lock::new(self.engine.clone(), self.name.clone(), 1, u32::MAX)
    }

    /// The exclusive side.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use std::time::Duration;
    /// let config = clinch.rwlock("config");
    /// let writer = config.write().lease(Duration::from_secs(5)).acquire().await?;
    /// assert!(config.read().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn write(&self) -> Lock {
        Lock::new(self.engine.clone(), self.name.clone(), u32::MAX, u32::MAX)
    }
}
