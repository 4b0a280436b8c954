//! The contract between the engine and a store.
//!
//! A store keeps claims; the engine above it does everything else (queues inside the process,
//! renewal, loss detection, reentrancy, multi-locks, elections). To add a store, implement
//! [`Store`], run the conformance suite of `clinch-testkit`, and write its page in `docs/stores`.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! # use clinch_core::{Clinch, Name, OwnerId, memory::MemoryStore};
//! # let context = Clinch::context("app")?;
//! # let claim = clinch_core::store::Claim {
//! #     name: Name::new("a")?, request: context.identity.request(),
//! #     owner: OwnerId::new("me"), client: context.identity.info().clone(), units: 1, limit: 1,
//! #     lease: std::time::Duration::from_secs(30), lock_delay: std::time::Duration::ZERO,
//! #     label: None, value: None, queue: true };
//! # let store = MemoryStore::new(context.clone());
//! use clinch_core::store::{ClaimReply, Hold, ReleaseReply, Store};
//! let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
//! let hold = Hold { name: claim.name.clone(), request: claim.request, seq: grant.seq };
//! assert!(store.check(&hold.name, hold.seq).await?.is_current());
//! assert_eq!(store.release(&hold).await?, ReleaseReply::Released);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod claim;
mod doubts;
mod events;
mod info;
pub mod line;
mod view;
mod wakes;

use std::sync::Arc;

use async_trait::async_trait;

pub use claim::{
    Busy, Claim, ClaimReply, Ending, Evicted, Freshness, Grant, Hold, LostReason, Predecessor,
    Queued, ReleaseReply, RenewReply, Renewal, mismatch,
};
pub use doubts::{Doubt, DoubtBook, Doubts};
pub use events::{Event, EventKind, EventSender, Events};
pub use info::{Capabilities, Capability, Finding, Guarantees, Limits, Severity, StoreInfo};
pub use view::{LockView, PartyView};
pub use wakes::{Wake, WakeBook, WakeSender, Wakes};

use crate::{Clock, Identity, Name, Result};

/// What a store is given when it is opened.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, Clock, store::OpenContext};
/// let (clock, hand) = Clock::manual(); // a test drives the time
/// let context = OpenContext { clock, ..Clinch::context("billing")? };
/// let before = context.clock.now();
/// hand.advance(std::time::Duration::from_secs(1));
/// assert_eq!(context.clock.now().since(before).as_secs(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct OpenContext {
    /// The prefix that separates applications in one store; already checked.
    pub namespace: Arc<str>,
    /// The client that opens it.
    pub identity: Arc<Identity>,
    /// The clock that its leases are counted on, where it counts them itself.
    pub clock: Clock,
}

/// An engine that keeps locks.
///
/// # Contract
///
/// 1. **Atomic.** Each mutating call is one atomic step at the engine: the token, the request id and
///    the state change together or not at all.
/// 2. **Idempotent by request id.** A call repeated after a lost reply gives the same answer and
///    changes nothing twice. A repeated claim that is held or queued *extends its lease* as a
///    renewal would, because the engine above counts the lease from the latest send.
/// 3. **Never blocks.** No call waits for a lock to become free. A call that waits for the network
///    ends within a bounded time with [`ErrorKind::Unreachable`](crate::ErrorKind).
/// 4. **Says what may have happened.** An error after the request may have left carries
///    [`Effect::Possible`](crate::Effect). Everything else must be a definite no.
/// 5. **Any thread, any executor.** Futures are polled on the caller's executor, which need not be
///    tokio, and on the keeper. A store that needs a reactor runs its I/O with
///    [`keeper::run`](crate::keeper::run). Dropping a future at any point must leave the store
///    usable; the engine withdraws the claim afterwards.
/// 6. **Waiters hold leases too.** A queued claim that is not repeated within its lease is gone.
/// 7. **Tokens** ([`Grant::seq`]) rise with every grant of a name, at most 51 bits.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, OwnerId, memory::MemoryStore};
/// # let context = Clinch::context("app")?;
/// # let claim = clinch_core::store::Claim {
/// #     name: Name::new("a")?, request: context.identity.request(),
/// #     owner: OwnerId::new("me"), client: context.identity.info().clone(), units: 1, limit: 1,
/// #     lease: std::time::Duration::from_secs(30), lock_delay: std::time::Duration::ZERO,
/// #     label: None, value: None, queue: true };
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Store};
/// let first = store.claim(&claim).await?;
/// assert!(matches!(first, ClaimReply::Granted(_)));
/// let again = store.claim(&claim).await?; // the reply was lost, say: ask with the same id
/// assert_eq!(again, first);
/// store.withdraw(&claim).await?; // and it is gone for good
/// assert!(matches!(store.claim(&claim).await?, ClaimReply::Gone(_)));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// What this store is, can and promises. Cheap; the same for the store's whole life.
    fn info(&self) -> &StoreInfo;

    /// Asks to hold a name.
    ///
    /// Granted when the units held plus those queued ahead leave room for its own. Otherwise it is
    /// queued if [`Claim::queue`] says so, and refused with [`ClaimReply::Busy`] if not. A claim
    /// with another limit than the name has in use fails with `Mismatch`.
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply>;

    /// Hints that repeating this queued claim is worthwhile, or the grant itself.
    ///
    /// Called before the claim is repeated, so that no hint falls between (or after it was queued,
    /// where [`Queued::wakes_kept`] says that none does). Hints may be lost, late or spurious; the
    /// stream ends when the store can give no more of them.
    fn wakes(&self, claim: &Claim) -> Wakes;

    /// Extends holds, in as few round trips as the engine allows; one reply for each, in order.
    ///
    /// Where only a part of them fails, those get [`RenewReply::Unknown`] and the others their reply:
    /// one server that does not answer costs only the holds on it. An error means that none is known.
    ///
    /// Only the keeper calls it. A renewal never creates a hold, and changes nothing unless the
    /// request id and the token both match.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>>;

    /// What the store has reason to doubt between renewals: a connection that has broken, a hold that
    /// somebody else seems to have taken away.
    ///
    /// A guard in doubt is [`Suspect`](crate::Status::Suspect) at once, and its hold is renewed at
    /// once: only the answer to that clears it or makes it lost. So a doubt may be spurious, and one
    /// that is missing costs time, until the next renewal is due, and nothing else.
    fn doubts(&self) -> Doubts {
        Doubts::none()
    }

    /// Gives a hold up. Changes nothing unless the request id and the token both match.
    async fn release(&self, hold: &Hold) -> Result<ReleaseReply>;

    /// Makes sure that this claim has neither a ticket nor a hold, now or later: a copy of the
    /// claim that is still under way must find itself refused.
    async fn withdraw(&self, claim: &Claim) -> Result<()>;

    /// Whether `seq` is a current grant of `name`.
    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness>;

    /// The names with holders, waiters or a running lock-delay that start with `prefix`, in byte order.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>>;

    /// One name in full; `None` when nobody holds or waits and no lock-delay runs.
    async fn inspect(&self, name: &Name) -> Result<Option<LockView>>;

    /// What happens to names that start with `prefix`, from the moment this call has returned.
    async fn events(&self, prefix: &str) -> Result<Events>;

    /// Breaks the hold with this sequence number: an unclean end, so the holder's lock-delay applies.
    /// If that hold has ended already and its lock-delay runs, ends the delay.
    ///
    /// Without a number, breaks every hold of the name, or ends its lock-delays if nobody holds it.
    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted>;

    /// Settings of the engine that would break a promise, and what to do about them.
    async fn doctor(&self) -> Result<Vec<Finding>>;

    /// Operations (requests, transactions) that this client has sent to the engine so far.
    fn operations(&self) -> u64;

    /// Ends the session cleanly: releases what is left and stops background work.
    ///
    /// The engine calls it after it has released every hold and withdrawn every claim, as far as the
    /// store has answered in time. What it has not answered goes on, and a claim may still be under
    /// way in a task of a caller. So, afterwards:
    ///
    /// - A claim must be refused, or change nothing that stays.
    /// - [`release`](Self::release) and [`withdraw`](Self::withdraw) must work as before; a store
    ///   whose session ended every claim of this client may answer
    ///   [`ErrorKind::Closed`](crate::ErrorKind) instead.
    async fn close(&self) -> Result<()>;
}
