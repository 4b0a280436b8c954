//! Claims, and what a store answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClientInfo, Error, ErrorKind, Name, OwnerId, RequestId};

/// One request to hold a name.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// use clinch_core::{Clinch, Name, OwnerId, memory::MemoryStore};
/// use std::time::Duration;
/// let context = Clinch::context("app")?;
/// let claim = Claim {
///     name: Name::new("orders/42")?,
///     request: context.identity.request(),
///     owner: OwnerId::new("me"),
///     client: context.identity.info().clone(),
///     units: 1,
///     limit: 1, // a mutex
///     lease: Duration::from_secs(30),
///     lock_delay: Duration::ZERO,
///     label: None,
///     value: None,
///     queue: false,
/// };
/// let store = MemoryStore::new(context);
/// assert!(matches!(store.claim(&claim).await?, ClaimReply::Granted(_)));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lock.
    pub name: Name,
    /// Makes the claim idempotent.
    pub request: RequestId,
    /// Who will hold it, for people.
    pub owner: OwnerId,
    /// The client that asks.
    pub client: Arc<ClientInfo>,
    /// Units taken of the name's capacity, at least 1.
    pub units: u32,
    /// The name's capacity; `u32::MAX` for a read-write lock.
    pub limit: u32,
    /// How long the hold, or the place in the queue, lives without being renewed.
    pub lease: Duration,
    /// After an unclean end of this hold: how long its units stay taken.
    pub lock_delay: Duration,
    /// A word for people.
    pub label: Option<Arc<str>>,
    /// What a leader publishes.
    pub value: Option<Arc<str>>,
    /// Whether to wait in the store's queue when the name is taken.
    pub queue: bool,
}

/// A store's answer to a claim.
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
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// let other = Claim { request: context.identity.request(), ..claim.clone() };
/// let third = Claim { request: context.identity.request(), queue: false, ..claim.clone() };
/// assert!(matches!(store.claim(&claim).await?, ClaimReply::Granted(_)));
/// assert!(matches!(store.claim(&other).await?, ClaimReply::Queued(_)));
/// assert!(matches!(store.claim(&third).await?, ClaimReply::Busy(_)));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    /// It is held.
    Granted(Grant),
    /// It has a place in the queue.
    Queued(Queued),
    /// It is taken, and the claim did not want to queue: nothing is left of it.
    Busy(Busy),
    /// This request id was granted or queued before and has ended since (expired, evicted,
    /// withdrawn). A definite answer: ask with a new id.
    Gone(LostReason),
}

/// The error of a claim whose limit is not the one in use.
///
/// ```
/// use clinch_core::{ErrorKind, Name, store::mismatch};
/// let error = mismatch(&Name::new("a")?, 1, 5);
/// assert_eq!(error.kind(), ErrorKind::Mismatch);
/// assert!(error.to_string().contains("in use as a mutex, and was asked for as a semaphore of 5"));
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub fn mismatch(name: &Name, used: u32, asked: u32) -> Error {
    let text = |limit| match limit {
        1 => "a mutex".to_owned(),
        u32::MAX => "a read-write lock".to_owned(),
        n => format!("a semaphore of {n}"),
    };
    let (used, asked) = (text(used), text(asked));
    Error::new(
        ErrorKind::Mismatch,
        format!("it is in use as {used}, and was asked for as {asked}"),
    )
    .with_name(name.as_str())
    .with_advice("use one kind and limit for a name, or another name")
}

/// A claim that succeeded.
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
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// let ClaimReply::Granted(first) = store.claim(&claim).await? else { panic!("it is free") };
/// store.evict(&claim.name, Some(first.seq)).await?;
/// let next = Claim { request: context.identity.request(), ..claim };
/// let ClaimReply::Granted(second) = store.claim(&next).await? else { panic!("it is free") };
/// assert!(second.seq > first.seq);
/// assert_eq!(second.predecessor.unwrap().seq, first.seq);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The store's sequence number: the upper bits of the token.
    pub seq: u64,
    /// How the hold before this one ended, where the store still knows.
    pub predecessor: Option<Predecessor>,
}

/// A place in the store's queue.
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
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// store.claim(&claim).await?;
/// let next = Claim { request: context.identity.request(), ..claim.clone() };
/// let ClaimReply::Queued(queued) = store.claim(&next).await? else { panic!("it is taken") };
/// assert_eq!(queued.ahead, 0); // next
/// assert!(queued.retry_after.unwrap() <= claim.lease);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queued {
    /// Claims ahead in the queue; 0 means next.
    pub ahead: usize,
    /// The soonest time at which the name can become free by itself (a lease or lock-delay ends).
    pub retry_after: Option<Duration>,
    /// Whether the store keeps what it has to say to this claim from the moment it was queued until
    /// [`wakes`](super::Store::wakes) is called. Without that, the claim is repeated once after
    /// listening has begun, so that no wake falls between.
    pub wakes_kept: bool,
}

/// The name is taken.
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
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// store.claim(&claim).await?;
/// let other = Claim { request: context.identity.request(), queue: false, ..claim.clone() };
/// let ClaimReply::Busy(busy) = store.claim(&other).await? else { panic!("it is taken") };
/// assert!(busy.retry_after.unwrap() <= claim.lease);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Busy {
    /// The soonest time at which the name can become free by itself.
    pub retry_after: Option<Duration>,
}

/// A hold as the store knows it.
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
/// use clinch_core::store::{ClaimReply, Hold, Store};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// let hold = Hold { name: claim.name, request: claim.request, seq: grant.seq };
/// let stale = Hold { seq: grant.seq - 1, ..hold.clone() };
/// assert!(!store.release(&stale).await?.was_held()); // both must match
/// assert!(store.release(&hold).await?.was_held());
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

/// A hold to be extended.
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
/// use clinch_core::store::{ClaimReply, Hold, RenewReply, Renewal, Store};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// let hold = Hold { name: claim.name, request: claim.request, seq: grant.seq };
/// let renewal = Renewal { hold, lease: claim.lease * 2, value: None };
/// assert_eq!(store.renew(&[renewal]).await?, [RenewReply::Held]);
/// assert!(store.list("").await?[0].holders[0].lease_left > claim.lease);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The hold.
    pub hold: Hold,
    /// The new lease, counted from when the store sees it.
    pub lease: Duration,
    /// A new published value; `None` leaves the old one.
    pub value: Option<Arc<str>>,
}

/// The answer to one renewal.
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
/// use clinch_core::store::{ClaimReply, Hold, LostReason, RenewReply, Renewal, Store};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// store.evict(&claim.name, None).await?;
/// let hold = Hold { name: claim.name, request: claim.request, seq: grant.seq };
/// let renewal = Renewal { hold, lease: claim.lease, value: None };
/// assert_eq!(store.renew(&[renewal]).await?, [RenewReply::Lost(LostReason::Evicted)]);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease runs anew.
    Held,
    /// It is not held any more; final.
    Lost(LostReason),
    /// Not known: the part of the engine that has this hold did not answer. The hold may have been
    /// extended; the replies to the other renewals count.
    Unknown,
}

/// The answer to a release.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::{LostReason, ReleaseReply};
/// let guard = clinch.lock("a").acquire().await?;
/// match guard.release().await? {
///     ReleaseReply::Released => println!("nobody came between"),
///     ReleaseReply::WasLost(reason) => panic!("the work may not count: {reason}"),
/// }
/// assert!(!ReleaseReply::WasLost(LostReason::Expired).was_held());
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

/// Whether a sequencer is still worth something.
///
/// ```
/// use clinch_core::store::Freshness;
/// assert!(Freshness::Current.is_current());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Its holder still holds.
    Current,
    /// Its hold has ended.
    Stale,
}

impl Freshness {
    /// `true` for [`Freshness::Current`].
    pub fn is_current(self) -> bool {
        self == Self::Current
    }
}

/// What an eviction broke.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("a").acquire().await?;
/// let evicted = clinch.evict("a", None).await?;
/// assert_eq!(evicted.seqs, [guard.token().seq()]);
/// assert!(clinch.evict("a", None).await?.seqs.is_empty()); // nothing left to break
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Sequence numbers of the broken holds.
    pub seqs: Vec<u64>,
    /// Sequence numbers of the holds that had ended, and whose lock-delays were ended.
    pub delays: Vec<u64>,
}

/// How the hold before a grant ended.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::store::Ending;
/// clinch.lock("a").acquire().await?.release().await?;
/// let guard = clinch.lock("a").acquire().await?;
/// assert_eq!(guard.predecessor().unwrap().ending, Ending::Released);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    /// The way it ended.
    pub ending: Ending,
    /// Its sequence number.
    pub seq: u64,
    /// Its owner.
    pub owner: OwnerId,
}

/// The ways in which a hold ends at the store.
///
/// ```
/// use clinch_core::{LostReason, store::Ending};
/// assert!(Ending::Expired.is_unclean() && !Ending::Released.is_unclean());
/// assert_eq!(LostReason::from(Ending::Evicted), LostReason::Evicted);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its holder gave it up.
    Released,
    /// Its lease ran out, or its process died.
    Expired,
    /// An operator broke it.
    Evicted,
}

impl Ending {
    /// `true` unless the holder itself gave it up: then the lock-delay applies.
    pub fn is_unclean(self) -> bool {
        self != Self::Released
    }

    /// The ending in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Evicted => "evicted",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a hold is no longer held.
///
/// ```
/// use clinch_core::LostReason;
/// assert_eq!(LostReason::Evicted.to_string(), "an operator evicted it");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// No renewal was acknowledged before the local deadline.
    Unrenewed,
    /// The store says that the lease had run out.
    Expired,
    /// An operator broke it.
    Evicted,
    /// The store does not know this hold: it lost its data, or another server answers.
    Forgotten,
    /// The hold's own limit (`max_hold`) has passed.
    MaxHold,
    /// It was released or withdrawn before.
    Released,
    /// The client was closed.
    Closed,
    /// It belongs to the process that this one was forked from.
    Forked,
}

impl LostReason {
    /// The reason as one word, for `--json` and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unrenewed => "unrenewed",
            Self::Expired => "expired",
            Self::Evicted => "evicted",
            Self::Forgotten => "forgotten",
            Self::MaxHold => "max-hold",
            Self::Released => "released",
            Self::Closed => "closed",
            Self::Forked => "forked",
        }
    }
}

impl std::error::Error for LostReason {}

impl From<Ending> for LostReason {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Released => Self::Released,
            Ending::Expired => Self::Expired,
            Ending::Evicted => Self::Evicted,
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unrenewed => "it could not be renewed in time",
            Self::Expired => "its lease ran out at the store",
            Self::Evicted => "an operator evicted it",
            Self::Forgotten => "the store does not know it any more",
            Self::MaxHold => "it was held for its longest time",
            Self::Released => "it had been released before",
            Self::Closed => "its client was closed",
            Self::Forked => "it belongs to the process that this one was forked from",
        })
    }
}
