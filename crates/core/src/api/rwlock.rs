//! Read-write locks.

use std::sync::Arc;

use super::Lock;
use crate::engine::Engine;
use crate::{Name, Result};

/// A read-write lock: many readers, or one writer.
///
/// # Fairness
///
/// FIFO at the store: a waiting writer blocks later readers, so it does not starve.
///
/// # Cancel safety
///
/// As for [`Lock`].
///
/// # Guarantees
///
/// As for [`Lock`]; each reader has its own lease and token. An [owner](crate::Owner) that holds the
/// write lock may also read; an owner that holds the read lock is refused the write lock.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let config = clinch.rwlock("config");
/// let a = config.read().acquire().await?;
/// let b = config.read().acquire().await?;
/// assert!(config.write().try_acquire().await?.is_none());
/// drop((a, b));
/// let writer = config.write().acquire().await?;
/// # Ok::<_, clinch::Error>(()) }).unwrap();
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
    pub fn write(&self) -> Lock {
        Lock::new(self.engine.clone(), self.name.clone(), u32::MAX, u32::MAX)
    }
}
