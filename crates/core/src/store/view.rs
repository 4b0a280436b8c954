//! What an operator sees of a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::{ClientId, Name, OwnerId, Token};

/// One lock with its holders and waiters, each in order.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let lock = clinch.semaphore("workers", 2);
/// let guard = lock.permits(2).acquire().await?;
/// let view = clinch.inspect("workers").await?.unwrap();
/// assert_eq!((view.limit, view.holders.len(), view.waiters.len()), (2, 1, 0));
/// assert_eq!(view.delayed_for(), None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// The lock.
    pub name: Name,
    /// Its capacity: 1 for a mutex, `u32::MAX` for a read-write lock.
    pub limit: u32,
    /// Who holds it, oldest first.
    pub holders: Vec<PartyView>,
    /// Who waits, next first.
    pub waiters: Vec<PartyView>,
    /// Holds that ended uncleanly and whose lock-delay keeps their units taken: who held them, the
    /// token that they had, and as the lease that is left, how long the delay still lasts.
    pub delayed: Vec<PartyView>,
}

impl LockView {
    /// How long lock-delays still keep units taken; `None` where none runs.
    pub fn delayed_for(&self) -> Option<Duration> {
        self.delayed.iter().map(|party| party.lease_left).max()
    }
}

/// One holder or waiter, or a hold that has ended and whose lock-delay runs.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("a").label("checkout").acquire().await?;
/// let holder = clinch.inspect("a").await?.unwrap().holders.remove(0);
/// assert_eq!((holder.pid, holder.token), (std::process::id(), Some(guard.token())));
/// assert!(holder.lease_left <= std::time::Duration::from_secs(30));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartyView {
    /// The owner.
    pub owner: OwnerId,
    /// The client.
    pub client: ClientId,
    /// Its machine; empty where the store does not tell (another library's holder).
    pub host: String,
    /// Its process there; 0 where the store does not tell.
    pub pid: u32,
    /// What it says of itself.
    pub label: Option<Arc<str>>,
    /// What it publishes, as a leader.
    pub value: Option<Arc<str>>,
    /// Units held or wanted.
    pub units: u32,
    /// The token of a holder, or of a hold that has ended, as the store knows it: hand-overs inside the process are not in it.
    pub token: Option<Token>,
    /// How long it has held or waited, or since when it has ended; [`Duration::MAX`] where the store does not tell.
    pub age: Duration,
    /// How long its lease still lasts; [`Duration::MAX`] for one that never ends.
    pub lease_left: Duration,
}
