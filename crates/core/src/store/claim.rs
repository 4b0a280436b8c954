//! Claims, and a store's replies to them.

use std::sync::Arc;
use std::time::Duration;

use super::{Hold, LostReason, Predecessor};
use crate::{ClientInfo, Error, ErrorKind, Identity, Name, OwnerId, RequestId};

/// One request to hold a name.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::{Claim, ClaimReply, Store};
/// use clinch_core::{Clinch, Name, memory::MemoryStore};
/// use std::time::Duration;
/// let context = Clinch::context("app")?;
/// let claim = Claim::new(&context.identity, Name::new("orders/42")?, Duration::from_secs(30));
/// let other = claim.another(&context.identity).without_queue();
/// let store = MemoryStore::new(context);
/// assert!(matches!(store.claim(&claim).await?, ClaimReply::Granted(_)));
/// assert!(matches!(store.claim(&other).await?, ClaimReply::Busy(_)));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lock.
    pub name: Name,
    /// The id that makes the claim idempotent.
    pub request: RequestId,
    /// The owner, shown to operators.
    pub owner: OwnerId,
    /// The client that sends the claim.
    pub client: Arc<ClientInfo>,
    /// Units taken of the name's capacity, at least 1.
    pub units: u32,
    /// The name's capacity; `u32::MAX` for a read-write lock.
    pub limit: u32,
    /// How long the hold, or the place in the queue, lives without a renewal.
    pub lease: Duration,
    /// How long the units stay taken after an unclean end of this hold.
    pub lock_delay: Duration,
    /// A label, shown to operators.
    pub label: Option<Arc<str>>,
    /// The value that a leader publishes.
    pub value: Option<Arc<str>>,
    /// Whether to wait in the store's queue if the name is taken.
    pub queue: bool,
}

impl Claim {
    /// A claim of a mutex with a fresh request id. It queues if the mutex is taken.
    pub fn new(identity: &Identity, name: Name, lease: Duration) -> Self {
        Self {
            name,
            request: identity.request(),
            owner: OwnerId::new(identity.info().id.to_string()),
            client: identity.info().clone(),
            units: 1,
            limit: 1,
            lease,
            lock_delay: Duration::ZERO,
            label: None,
            value: None,
            queue: true,
        }
    }

    /// The same claim with a fresh request id.
    #[must_use]
    pub fn another(&self, identity: &Identity) -> Self {
        Self {
            request: identity.request(),
            ..self.clone()
        }
    }

    /// Takes `units` of a name with this capacity.
    #[must_use]
    pub fn with_units(self, units: u32, limit: u32) -> Self {
        Self {
            units,
            limit,
            ..self
        }
    }

    /// Is refused instead of queued if the name is taken.
    #[must_use]
    pub fn without_queue(self) -> Self {
        Self {
            queue: false,
            ..self
        }
    }

    /// Keeps the units taken for this long after an unclean end.
    #[must_use]
    pub fn with_lock_delay(self, lock_delay: Duration) -> Self {
        Self { lock_delay, ..self }
    }

    /// The hold that a grant with this sequence number makes of the claim.
    pub fn hold(&self, seq: u64) -> Hold {
        Hold::new(self.name.clone(), self.request, seq)
    }
}

/// A store's reply to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    /// The claim holds the name.
    Granted(Grant),
    /// The claim has a place in the queue.
    Queued(Queued),
    /// The name is taken and the claim does not queue: nothing of it remains at the store.
    Busy(Busy),
    /// This request id was granted or queued before and has ended since (expired, evicted,
    /// withdrawn). Final: a new attempt needs a new id.
    Gone(LostReason),
}

/// The error of a claim whose limit differs from the one in use.
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
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{Admin, ClaimReply, Store};
/// let ClaimReply::Granted(first) = store.claim(&claim).await? else { panic!("it is free") };
/// store.evict(&claim.name, Some(first.seq)).await?;
/// let next = claim.another(&context.identity);
/// let ClaimReply::Granted(second) = store.claim(&next).await? else { panic!("it is free") };
/// assert!(second.seq > first.seq);
/// assert_eq!(second.predecessor.unwrap().seq, first.seq);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The store's sequence number: the upper bits of the token.
    pub seq: u64,
    /// How the hold before this one ended, if the store still has a record of it.
    pub predecessor: Option<Predecessor>,
}

impl Grant {
    /// A grant with this sequence number, after this predecessor.
    pub fn new(seq: u64, predecessor: Option<Predecessor>) -> Self {
        Self { seq, predecessor }
    }
}

/// A place in the store's queue.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Store};
/// store.claim(&claim).await?;
/// let next = claim.another(&context.identity);
/// let ClaimReply::Queued(queued) = store.claim(&next).await? else { panic!("it is taken") };
/// assert_eq!(queued.ahead, 0); // next
/// assert!(queued.retry_after.unwrap() <= claim.lease);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Queued {
    /// Claims ahead in the queue; 0 means next.
    pub ahead: usize,
    /// The earliest time at which the name can become free by itself (a lease or lock-delay ends).
    pub retry_after: Option<Duration>,
    /// Whether the store keeps wakes for this claim from the moment it was queued until
    /// [`wakes`](super::Store::wakes) is called. If not, the engine repeats the claim once after it
    /// listens, so that no wake is missed.
    pub wakes_kept: bool,
}

impl Queued {
    /// A place behind `ahead` claims. Wakes are not kept unless
    /// [`with_wakes_kept`](Self::with_wakes_kept) says so.
    pub fn new(ahead: usize, retry_after: Option<Duration>) -> Self {
        Self {
            ahead,
            retry_after,
            wakes_kept: false,
        }
    }

    /// Whether the store keeps wakes until they are listened for.
    #[must_use]
    pub fn with_wakes_kept(self, wakes_kept: bool) -> Self {
        Self { wakes_kept, ..self }
    }
}

/// The name is taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Busy {
    /// The earliest time at which the name can become free by itself.
    pub retry_after: Option<Duration>,
}

impl Busy {
    /// The name is taken, and can become free by itself after this time.
    pub fn new(retry_after: Option<Duration>) -> Self {
        Self { retry_after }
    }
}
