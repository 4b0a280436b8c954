//! The blocking guards.

use std::ops::Deref;

use super::block_on;
use crate::store::ReleaseReply;
use crate::{LostReason, Name, Result};

/// The blocking twin of [`Guard`](crate::Guard), with the same guarantees. It derefs to that type for
/// the token, the validity, the sequencer and so on. It has been released when `drop` returns.
///
/// There is no blocking `run`, because a running function cannot be stopped: check
/// [`is_valid`](crate::Guard::is_valid) between the steps of the work.
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let guard = clinch.lock("a").acquire()?;
/// assert!(guard.is_valid());
/// assert!(guard.release()?.was_held());
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// Blocks until the lock is lost.
    ///
    /// ```
    /// # let clinch = clinch::blocking::Clinch::memory();
    /// use std::time::Duration;
    /// let guard = clinch.lock("a").max_hold(Duration::from_millis(20)).acquire()?;
    /// assert_eq!(guard.lost(), clinch::LostReason::MaxHold);
    /// # Ok::<_, clinch::Error>(())
    /// ```
    pub fn lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// Releases the lock, and reports whether it was still held.
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
/// let clinch = clinch::blocking::Clinch::memory();
/// let both = clinch.all(["a", "b"]).acquire()?;
/// assert!(both.is_valid() && both.guards().len() == 2);
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard(pub(super) crate::MultiGuard);

impl MultiGuard {
    /// Blocks until the first of them is lost.
    pub fn lost(&self) -> (Name, LostReason) {
        block_on(self.0.lost())
    }

    /// Releases all, last name first. The replies are in the order of the names.
    pub fn release(self) -> Result<Vec<ReleaseReply>> {
        let guards = self.0.guards().iter().rev();
        let replies: Result<Vec<_>> = guards.map(|guard| block_on(guard.end())).collect();
        let mut replies = replies?;
        replies.reverse();
        Ok(replies)
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

/// Releases a guard that is dropped; does nothing after `release`.
pub(super) fn finish(guard: &crate::Guard) {
    if let Err(error) = block_on(guard.end()) {
        tracing::warn!(%error, "the release continues in the background");
    }
}
