//! How holds end.

use std::fmt;

use crate::OwnerId;

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
#[non_exhaustive]
pub struct Predecessor {
    /// The way it ended.
    pub ending: Ending,
    /// Its sequence number.
    pub seq: u64,
    /// Its owner.
    pub owner: OwnerId,
}

impl Predecessor {
    /// The hold with this sequence number, of this owner, ended this way.
    pub fn new(ending: Ending, seq: u64, owner: OwnerId) -> Self {
        Self { ending, seq, owner }
    }
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
    /// Its holder released it.
    Released,
    /// Its lease ran out, or its process died.
    Expired,
    /// An operator evicted it.
    Evicted,
}

impl Ending {
    /// `true` unless the holder released it. The lock-delay applies to unclean ends.
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
    /// An operator evicted it.
    Evicted,
    /// The store has no record of this hold: it lost its data, or another server answered.
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
