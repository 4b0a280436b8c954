//! Claims, and what a store answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClientInfo, Name, OwnerId, RequestId};

/// One request to hold a name.
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

/// A claim that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The store's sequence number: the upper bits of the token.
    pub seq: u64,
    /// How the hold before this one ended, where the store still knows.
    pub predecessor: Option<Predecessor>,
}

/// A place in the store's queue.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Busy {
    /// The soonest time at which the name can become free by itself.
    pub retry_after: Option<Duration>,
}

/// A hold as the store knows it.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease runs anew.
    Held,
    /// It is not held any more; final.
    Lost(LostReason),
}

/// The answer to a release.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Sequence numbers of the broken holds.
    pub seqs: Vec<u64>,
}

/// How the hold before a grant ended.
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
        })
    }
}
