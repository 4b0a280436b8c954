//! The contract between the engine and a store.
//!
//! A store keeps claims. The engine does the rest: queues inside the process, renewal, loss detection,
//! reentrancy, multi-locks, elections. To add a store, implement [`Store`] and [`Admin`], run the
//! conformance suite of `clinch-testkit`, and write its page in `docs/stores`; `CONTRIBUTING.md` has the
//! steps. The crate `clinch-kit` has what most stores need (URLs, backoff, batching, a ledger).
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
//! # let context = Clinch::context("app")?;
//! # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
//! # let store = MemoryStore::new(context.clone());
//! use clinch_core::store::{ClaimReply, ReleaseReply, Store};
//! let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
//! assert!(store.check(&claim.name, grant.seq).await?.is_current());
//! assert_eq!(store.release(&claim.hold(grant.seq)).await?, ReleaseReply::Released);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod claim;
mod context;
mod ending;
mod events;
pub mod fifo;
mod hold;
mod info;
mod layer;
mod suspicions;
mod view;
mod wakes;

use async_trait::async_trait;

pub use claim::{Busy, Claim, ClaimReply, Grant, Queued, mismatch};
pub use context::{OpenContext, Operations};
pub use ending::{Ending, LostReason, Predecessor};
pub use events::{Event, EventKind, EventSender, Events};
pub use hold::{Evicted, Freshness, Hold, ReleaseReply, RenewReply, Renewal};
pub use info::{Capabilities, Capability, Finding, Guarantees, Limits, Severity, StoreInfo};
pub(crate) use layer::{Layer, Terms, check_value};
pub use suspicions::{Suspicion, SuspicionRegistry, Suspicions};
pub use view::{LockView, PartyView};
pub use wakes::{Wake, WakeRegistry, WakeSender, Wakes};

use crate::{Name, Result};

/// An engine that keeps locks: what the lock engine needs of it.
///
/// # Contract
///
/// 1. **Atomic.** Each mutating call is one atomic step at the engine: the token, the request id and
///    the state change together or not at all.
/// 2. **Idempotent by request id.** A call that is repeated after a lost reply gets the same reply and
///    changes nothing twice. A repeated claim that is held or queued *extends its lease* as a
///    renewal does, because the lock engine counts the lease from the latest send.
/// 3. **Never blocks.** No call waits for a lock to become free. A call that waits for the network
///    ends within a bounded time with [`ErrorKind::Unreachable`](crate::ErrorKind).
/// 4. **Reports possible effects.** An error after the request may have left carries
///    [`Effect::Possible`](crate::Effect). Every other error means that nothing changed.
/// 5. **Any thread, any executor.** Futures are polled on the caller's executor, which need not be
///    tokio, and on the keeper. A store that needs a reactor runs its I/O with
///    [`keeper::run`](crate::keeper::run). Dropping a future at any point leaves the store usable; the
///    lock engine withdraws the claim afterwards.
/// 6. **Waiters have leases too.** A queued claim that is not repeated within its lease is gone.
/// 7. **Tokens** ([`Grant::seq`]) rise with every grant of a name, at most 51 bits, also after the
///    record of the name was removed. A store whose engine can lose that record keeps a watermark: the
///    greatest sequence number so far.
/// 8. **Ended claims are remembered.** A copy of a claim that arrives late (after a release, a
///    withdrawal, an eviction or an expiry) is refused with [`ClaimReply::Gone`], for as long as a copy can
///    be under way. Remember ends by time, never by count.
/// 9. **Failures stay apart.** If the record of one hold is corrupt, or one server of many does not
///    answer, only the holds on it fail.
///
/// # What core does for a store
///
/// Core wraps each store in a layer. It refuses claims, renewals and reads after
/// [`close`](Self::close) with [`ErrorKind::Closed`](crate::ErrorKind); it refuses what the store's
/// [`Capabilities`] and [`Limits`] rule out, before any I/O; it adds the store and the name to errors. A
/// store checks none of these.
///
/// No method has a default: a wrapper around a store cannot forget one.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Store};
/// let first = store.claim(&claim).await?;
/// assert!(matches!(first, ClaimReply::Granted(_)));
/// assert_eq!(store.claim(&claim).await?, first); // repeated after a lost reply: the same id
/// store.withdraw(&claim).await?;
/// assert!(matches!(store.claim(&claim).await?, ClaimReply::Gone(_))); // final
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// What this store is, can and promises. Cheap, and constant for the store's whole life.
    fn info(&self) -> &StoreInfo;

    /// Claims a name.
    ///
    /// Granted if the units held plus those queued ahead leave room for its own. Otherwise queued if
    /// [`Claim::queue`] is set, else refused with [`ClaimReply::Busy`]. A claim whose limit differs from
    /// the one in use fails with `Mismatch`.
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply>;

    /// A stream for a queued claim: hints that repeating it is worthwhile, or the grant itself.
    ///
    /// The lock engine listens before it repeats the claim, so no hint is missed. If
    /// [`Queued::wakes_kept`] is set, it does not repeat the claim. Hints may be lost, late or spurious.
    /// The stream ends if the store can send no more of them.
    fn wakes(&self, claim: &Claim) -> Wakes;

    /// Extends holds, in as few round trips as the engine allows. One reply for each, in order.
    ///
    /// If some fail, those get [`RenewReply::Unknown`] and the others their reply. An error means that
    /// the outcome of all is unknown. A hold whose record is corrupt is
    /// [`RenewReply::Lost`], and only that one.
    ///
    /// A renewal never creates a hold. It changes nothing unless the request id and the sequence number
    /// both match. Only the keeper calls it.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>>;

    /// A stream of holds that may be gone: a connection broke, or another client seems to have taken one.
    ///
    /// The lock engine marks such a guard [`Suspect`](crate::Status::Suspect) and renews it at once; the
    /// reply decides. So a suspicion may be spurious. A missing one delays the detection of a loss
    /// until the next renewal. A store that learns nothing between renewals returns
    /// [`Suspicions::none`].
    fn suspicions(&self) -> Suspicions;

    /// Releases a hold. Changes nothing unless the request id and the sequence number both match.
    async fn release(&self, hold: &Hold) -> Result<ReleaseReply>;

    /// Ends a claim, queued or held. A copy of the claim that arrives later is refused.
    async fn withdraw(&self, claim: &Claim) -> Result<()>;

    /// Whether `seq` is a current grant of `name`.
    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness>;

    /// Ends the session: releases what is left and stops background work.
    ///
    /// The lock engine has released every hold and withdrawn every claim before, as far as the store
    /// answered in time. The rest of them goes on, and a claim may still be under way in a caller's
    /// task. So, afterwards:
    ///
    /// - A claim under way is refused, or leaves nothing behind.
    /// - [`release`](Self::release) and [`withdraw`](Self::withdraw) still work. If the end of the
    ///   session ended every claim of this client, they may fail with
    ///   [`ErrorKind::Closed`](crate::ErrorKind) instead.
    async fn close(&self) -> Result<()>;
}

/// What operators need of a store, beside locking.
#[async_trait]
pub trait Admin: Store {
    /// The names with holders, waiters or a running lock-delay that start with `prefix`, in byte order.
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>>;

    /// One name in full; `None` if it has no holder, no waiter and no running lock-delay.
    async fn inspect(&self, name: &Name) -> Result<Option<LockView>>;

    /// Events of names that start with `prefix`, from the moment this call has returned.
    async fn events(&self, prefix: &str) -> Result<Events>;

    /// Ends the hold with this sequence number. This is an unclean end, so the holder's lock-delay
    /// applies. If that hold has ended already and its lock-delay runs, ends the delay.
    ///
    /// Without a number, ends every hold of the name, or its lock-delays if it has no holder.
    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted>;

    /// Settings of the engine that would break a promise, with advice.
    async fn doctor(&self) -> Result<Vec<Finding>>;
}
