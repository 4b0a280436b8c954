//! Holds, and a store's replies about them.

use std::sync::Arc;
use std::time::Duration;

use super::LostReason;
use crate::{Name, RequestId};

/// A hold as the store identifies it.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Store};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// assert!(!store.release(&claim.hold(grant.seq - 1)).await?.was_held()); // both must match
/// assert!(store.release(&claim.hold(grant.seq)).await?.was_held());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub name: Name,
    /// The claim that became this hold.
    pub request: RequestId,
    /// The store's sequence number.
    pub seq: u64,
}

impl Hold {
    /// The hold of this claim, with this sequence number.
    pub fn new(name: Name, request: RequestId, seq: u64) -> Self {
        Self { name, request, seq }
    }
}

/// A hold to extend.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{Admin, ClaimReply, LostReason, RenewReply, Renewal, Store};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// let renewals = [Renewal::new(claim.hold(grant.seq), claim.lease * 2)];
/// assert_eq!(store.renew(&renewals).await?, [RenewReply::Held]);
/// assert!(store.list("").await?[0].holders[0].lease_left > claim.lease);
/// store.evict(&claim.name, None).await?;
/// assert_eq!(store.renew(&renewals).await?, [RenewReply::Lost(LostReason::Evicted)]);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The hold.
    pub hold: Hold,
    /// The new lease, counted from when the store applies the renewal.
    pub lease: Duration,
    /// A new published value; `None` keeps the old one.
    pub value: Option<Arc<str>>,
}

impl Renewal {
    /// Extends a hold by a lease; its published value stays.
    pub fn new(hold: Hold, lease: Duration) -> Self {
        Self {
            hold,
            lease,
            value: None,
        }
    }

    /// Publishes this value as well.
    #[must_use]
    pub fn with_value(self, value: Option<Arc<str>>) -> Self {
        Self { value, ..self }
    }
}

/// The reply to one renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease starts anew.
    Held,
    /// It is not held any more; final.
    Lost(LostReason),
    /// Unknown: the part of the engine that has this hold did not answer. The hold may have been
    /// extended. The replies to the other renewals are valid.
    Unknown,
}

/// The reply to a release.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::ReleaseReply;
/// let guard = clinch.lock("a").acquire().await?;
/// match guard.release().await? {
///     ReleaseReply::Released => println!("held until now"),
///     ReleaseReply::WasLost(reason) => panic!("the work may not count: {reason}"),
/// }
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReply {
    /// It was held until now.
    Released,
    /// It had ended before.
    WasLost(LostReason),
}

impl ReleaseReply {
    /// Whether it was held until the release.
    pub fn was_held(self) -> bool {
        self == Self::Released
    }
}

/// Whether the hold behind a sequencer is still current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The hold is current.
    Current,
    /// The hold has ended.
    Stale,
}

impl Freshness {
    /// `true` for [`Freshness::Current`].
    pub fn is_current(self) -> bool {
        self == Self::Current
    }
}

/// What an eviction ended.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("a").acquire().await?;
/// let evicted = clinch.evict("a", None).await?;
/// assert_eq!(evicted.seqs, [guard.token().seq()]);
/// assert!(clinch.evict("a", None).await?.seqs.is_empty()); // nothing left to evict
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Evicted {
    /// Sequence numbers of the holds that were ended.
    pub seqs: Vec<u64>,
    /// Sequence numbers of the holds that had ended before and whose lock-delay was ended.
    pub delays: Vec<u64>,
}

impl Evicted {
    /// Ended these holds and these lock-delays.
    pub fn new(seqs: Vec<u64>, delays: Vec<u64>) -> Self {
        Self { seqs, delays }
    }
}
