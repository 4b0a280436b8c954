//! The blocking guards.

use std::ops::Deref;

use super::block_on;
use crate::store::ReleaseReply;
use crate::{LostReason, Name, Result};

/// The blocking twin of [`Guard`](crate::Guard), which it derefs to: token, validity, sequencer and
/// the rest are read there, with the same guarantees. It has been released when `drop` returns.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let guard = clinch.lock("a").acquire()?;
/// assert!(guard.is_valid());
/// assert!(guard.release()?.was_held());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// Blocks until it is lost.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
    /// use std::time::Duration;
    /// let guard = clinch.lock("a").max_hold(Duration::from_millis(20)).acquire()?;
    /// assert_eq!(guard.lost(), clinch_core::LostReason::MaxHold);
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// Gives it up and says whether it was still held.
    pub fn release(self) -> Result<ReleaseReply> {
        block_on(self.0.end())
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        finish(&self.0);
    }
}

/// The blocking twin of [`MultiGuard`](crate::MultiGuard), which it derefs to, with the same
/// guarantees. All have been released when `drop` returns.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let both = clinch.all(["a", "b"]).acquire()?;
/// assert!(both.is_valid() && both.guards().len() == 2);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard(pub(super) crate::MultiGuard);

impl MultiGuard {
    /// Blocks until the first of them is lost.
    pub fn lost(&self) -> (Name, LostReason) {
        block_on(self.0.lost())
    }

    /// Releases all and says of each whether it was still held.
    pub fn release(self) -> Result<Vec<ReleaseReply>> {
        self.0
            .guards()
            .iter()
            .map(|guard| block_on(guard.end()))
            .collect()
    }
}

impl Deref for MultiGuard {
    type Target = crate::MultiGuard;

    fn deref(&self) -> &crate::MultiGuard {
        &self.0
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        self.0.guards().iter().rev().for_each(finish);
    }
}

fn finish(guard: &crate::Guard) {
    if let Err(error) = block_on(guard.end()) {
        tracing::warn!(%error, "a release goes on in the background");
    }
}
