//! What an operator sees of a lock.

use std::sync::Arc;
use std::time::Duration;

use super::Claim;
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
#[non_exhaustive]
pub struct LockView {
    /// The lock.
    pub name: Name,
    /// Its capacity: 1 for a mutex, `u32::MAX` for a read-write lock.
    pub limit: u32,
    /// Its holders, oldest first.
    pub holders: Vec<PartyView>,
    /// Its waiters, next first.
    pub waiters: Vec<PartyView>,
    /// Holds that ended uncleanly and whose lock-delay keeps their units taken. `lease_left` is how long
    /// the delay still lasts.
    pub delayed: Vec<PartyView>,
}

impl LockView {
    /// A name with this capacity and no claims.
    pub fn new(name: Name, limit: u32) -> Self {
        Self {
            name,
            limit,
            holders: Vec::new(),
            waiters: Vec::new(),
            delayed: Vec::new(),
        }
    }

    /// Whether it has no holder, no waiter and no running lock-delay.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty() && self.delayed.is_empty()
    }

    /// How long lock-delays still keep units taken; `None` if none runs.
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
#[non_exhaustive]
pub struct PartyView {
    /// The owner.
    pub owner: OwnerId,
    /// The client.
    pub client: ClientId,
    /// Its machine; empty if unknown (a holder of another library).
    pub host: String,
    /// Its process there; 0 if unknown.
    pub pid: u32,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// The value that it publishes as a leader.
    pub value: Option<Arc<str>>,
    /// Units held or wanted.
    pub units: u32,
    /// The token of a holder, or of a hold that has ended. Hand-overs inside the process do not show.
    pub token: Option<Token>,
    /// Time since it was granted, queued or ended; [`Duration::MAX`] if unknown.
    pub age: Duration,
    /// How long its lease still lasts; [`Duration::MAX`] for a lease that never ends.
    pub lease_left: Duration,
}

impl PartyView {
    /// A party of an unknown process that takes one unit, for an unknown time.
    pub fn new(owner: OwnerId, client: ClientId) -> Self {
        Self {
            owner,
            client,
            host: String::new(),
            pid: 0,
            label: None,
            value: None,
            units: 1,
            token: None,
            age: Duration::MAX,
            lease_left: Duration::MAX,
        }
    }

    /// A party of the client that made this claim.
    pub fn of(claim: &Claim) -> Self {
        Self {
            host: claim.client.host.to_string(),
            pid: claim.client.pid,
            label: claim.label.clone(),
            value: claim.value.clone(),
            units: claim.units,
            ..Self::new(claim.owner.clone(), claim.client.id)
        }
    }
}
