//! What an operator sees of a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::{ClientId, Name, OwnerId, Token};

/// One lock with its holders and waiters, each in order.
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
    /// Where a lock-delay keeps units taken after an unclean end: how long it still lasts.
    pub delayed_for: Option<Duration>,
}

/// One holder or waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartyView {
    /// The owner.
    pub owner: OwnerId,
    /// The client.
    pub client: ClientId,
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// What it says of itself.
    pub label: Option<Arc<str>>,
    /// What it publishes, as a leader.
    pub value: Option<Arc<str>>,
    /// Units held or wanted.
    pub units: u32,
    /// The token of a holder, as the store knows it: hand-overs inside the process are not in it.
    pub token: Option<Token>,
    /// How long it has held or waited.
    pub age: Duration,
    /// How long its lease still lasts.
    pub lease_left: Duration,
}
