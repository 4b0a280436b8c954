//! One claim in a [`NameState`](super::NameState).

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Claim, Ending, Event, EventKind, PartyView, Predecessor};
use crate::{BootTime, ClientInfo, Name, OwnerId, RequestId, Token};

/// A claim with its place in the queue of its name.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Sequence};
/// # use clinch_core::BootTime;
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// # let (mut numbers, mut out) = (Counter(0), Outcome::default());
/// let (mut state, now) = (NameState::new(claim.name.clone()), BootTime::from_nanos(0));
/// state.claim(&claim, now, &mut numbers, &mut out)?;
/// let entry = &state.entries[0];
/// assert_eq!((entry.request, entry.seq()), (claim.request, Some(1)));
/// assert_eq!(entry.until, now + claim.lease);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Place in the queue: lower is earlier.
    pub ticket: u64,
    /// The claim's id.
    pub request: RequestId,
    /// The owner.
    pub owner: OwnerId,
    /// The client that made the claim.
    pub client: Arc<ClientInfo>,
    /// Units wanted or held.
    pub units: u32,
    /// The name's limit, as this claim states it.
    pub limit: u32,
    /// The lease; a renewal may change it.
    pub lease: Duration,
    /// How long its units stay taken after an unclean end.
    pub lock_delay: Duration,
    /// Text for people.
    pub label: Option<Arc<str>>,
    /// Value that a leader publishes.
    pub value: Option<Arc<str>>,
    /// Waiting, held or delayed.
    pub phase: Phase,
    /// When it entered this phase.
    pub since: BootTime,
    /// When the phase ends unless the claim is renewed.
    pub until: BootTime,
}

/// Phase of a claim.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Phase, Sequence};
/// # use clinch_core::BootTime;
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// # let (mut numbers, mut out) = (Counter(0), Outcome::default());
/// # let delay = claim.lease;
/// # let claim = claim.with_lock_delay(delay);
/// let (mut state, now) = (NameState::new(claim.name.clone()), BootTime::from_nanos(0));
/// state.claim(&claim, now, &mut numbers, &mut out)?;
/// assert_eq!(state.entries[0].phase, Phase::Held { seq: 1 });
/// state.evict(None, now, &mut numbers, &mut out); // with a lock-delay
/// assert_eq!(state.entries[0].phase, Phase::Delayed { seq: 1 });
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In the queue.
    Waiting,
    /// Granted, with this sequence number.
    Held {
        /// The store's sequence number.
        seq: u64,
    },
    /// Ended uncleanly; its units stay taken until the lock-delay has passed.
    Delayed {
        /// The sequence number of the hold that ended.
        seq: u64,
    },
}

impl Entry {
    /// The waiting entry of a claim that reaches the store at `now`. `ticket` must be greater than every
    /// ticket of the name.
    ///
    /// For stores that build entries themselves; [`NameState::claim`](super::NameState::claim) calls it
    /// for all others.
    pub fn arriving(claim: &Claim, ticket: u64, now: BootTime) -> Self {
        Self {
            ticket,
            request: claim.request,
            owner: claim.owner.clone(),
            client: claim.client.clone(),
            units: claim.units,
            limit: claim.limit,
            lease: claim.lease,
            lock_delay: claim.lock_delay,
            label: claim.label.clone(),
            value: claim.value.clone(),
            phase: Phase::Waiting,
            since: now,
            until: now + claim.lease,
        }
    }

    /// The sequence number, while it is held.
    pub fn seq(&self) -> Option<u64> {
        match self.phase {
            Phase::Held { seq } => Some(seq),
            Phase::Waiting | Phase::Delayed { .. } => None,
        }
    }

    /// Whether it has ended and its lock-delay is running.
    pub fn is_delayed(&self) -> bool {
        matches!(self.phase, Phase::Delayed { .. })
    }

    /// Whether it takes units now.
    pub(super) fn takes_units(&self) -> bool {
        self.phase != Phase::Waiting
    }

    /// The view for operators.
    pub(super) fn view(&self, now: BootTime) -> PartyView {
        PartyView {
            owner: self.owner.clone(),
            client: self.client.id,
            host: self.client.host.clone(),
            pid: self.client.pid,
            label: self.label.clone(),
            value: self.value.clone(),
            units: self.units,
            token: match self.phase {
                Phase::Held { seq } | Phase::Delayed { seq } => Token::new(seq, 0),
                Phase::Waiting => None,
            },
            age: now.since(self.since),
            lease_left: self.until.since(now),
        }
    }

    /// An event about it.
    pub(super) fn event(&self, kind: EventKind, name: &Name) -> Event {
        Event {
            kind,
            name: name.clone(),
            owner: self.owner.clone(),
            host: self.client.host.clone(),
            pid: self.client.pid,
            label: self.label.clone(),
            token: self.seq().and_then(|seq| Token::new(seq, 0)),
            value: self.value.clone(),
        }
    }
}

/// Tombstone of an ended claim: enough to answer its repeated requests, and to name the predecessor of
/// the next holder.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Sequence};
/// use clinch_core::store::{ClaimReply, Ending, LostReason};
/// # use clinch_core::BootTime;
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// # let (mut numbers, mut out) = (Counter(0), Outcome::default());
/// let (mut state, now) = (NameState::new(claim.name.clone()), BootTime::from_nanos(0));
/// state.claim(&claim, now, &mut numbers, &mut out)?;
/// state.evict(None, now, &mut numbers, &mut out);
/// assert_eq!((state.ended[0].seq, state.ended[0].ending), (Some(1), Ending::Evicted));
/// let late = state.claim(&claim, now, &mut numbers, &mut out)?; // a copy that was under way
/// assert_eq!(late, ClaimReply::Gone(LostReason::Evicted));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The claim's id.
    pub request: RequestId,
    /// Its sequence number; `None` if it was never granted (withdrawn, or expired while queued).
    pub seq: Option<u64>,
    /// Its owner.
    pub owner: OwnerId,
    /// How it ended.
    pub ending: Ending,
    /// When it ended.
    pub at: BootTime,
    /// Must be remembered until then, however many other claims end: a copy of the claim may still
    /// arrive. A moment in the past if no copy can be under way.
    pub keep: BootTime,
}

impl Ended {
    /// The predecessor of the next holder, if this was a hold.
    pub(super) fn predecessor(&self) -> Option<Predecessor> {
        let seq = self.seq?;
        Some(Predecessor {
            ending: self.ending,
            seq,
            owner: self.owner.clone(),
        })
    }
}
