//! The reference model: a state machine for one name, without I/O and without a clock.
//!
//! A [`NameState`] is the claims on one name in ticket order. Each step drops expired claims, applies
//! the command, then grants from the head of the queue. The memory store keeps these states in a map.
//! The embedded store loads and saves them in one transaction. The other stores must behave like it;
//! the test suites compare them.
//!
//! ```
//! # fn main() -> clinch_core::Result<()> {
//! # use clinch_core::{Clinch, Name};
//! # let context = Clinch::context("app")?;
//! # let lease = std::time::Duration::from_secs(30);
//! # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
//! use clinch_core::machine::{NameState, Outcome, Sequence};
//! use clinch_core::{BootTime, store::ClaimReply};
//! # struct Counter(u64);
//! # impl Sequence for Counter {
//! #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
//! # }
//! let (mut state, mut numbers) = (NameState::new(claim.name.clone()), Counter(0));
//! let (now, mut out) = (BootTime::from_nanos(0), Outcome::default());
//! let reply = state.claim(&claim, now, &mut numbers, &mut out)?;
//! assert!(matches!(reply, ClaimReply::Granted(grant) if grant.seq == 1));
//! // It is not renewed: one lease later it has ended. No clock was read.
//! state.tick(now + claim.lease, &mut numbers, &mut out);
//! assert!(state.entries.is_empty() && state.ended.len() == 1);
//! # Ok(()) }
//! ```

pub mod codec;
mod entry;
mod state;
#[cfg(test)]
mod tests;
mod view;

pub use entry::{Ended, Entry, Phase};
pub use state::NameState;

use crate::store::{Event, Grant};
use crate::{ClientId, RequestId};

/// Source of new sequence numbers.
///
/// ```
/// use clinch_core::machine::Sequence;
/// struct Counter(u64);
///
/// impl Sequence for Counter {
///     fn next(&mut self, after: u64) -> u64 {
///         self.0 = self.0.max(after) + 1;
///         self.0
///     }
/// }
/// let mut numbers = Counter(0);
/// assert_eq!((numbers.next(0), numbers.next(40), numbers.next(7)), (1, 41, 42));
/// ```
pub trait Sequence {
    /// A number greater than `after`, and greater than every number of a name that the store has
    /// forgotten.
    fn next(&mut self, after: u64) -> u64;
}

/// What a step did, in addition to its reply.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Sequence};
/// use clinch_core::{BootTime, store::EventKind};
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// let (now, mut out) = (BootTime::from_nanos(0), Outcome::default());
/// NameState::new(claim.name.clone()).claim(&claim, now, &mut Counter(0), &mut out)?;
/// assert_eq!(out.events[0].kind, EventKind::Granted);
/// assert!(out.granted.is_empty()); // the claimant has it as its reply
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Outcome {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Queued claims that this step granted; the store wakes their clients.
    pub granted: Vec<Woken>,
}

/// A queued claim that was granted by another client's step.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Sequence};
/// use clinch_core::{BootTime, store::Claim};
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// let (mut state, mut numbers) = (NameState::new(claim.name.clone()), Counter(0));
/// let (now, mut out) = (BootTime::from_nanos(0), Outcome::default());
/// let next = claim.another(&context.identity);
/// state.claim(&claim, now, &mut numbers, &mut out)?;
/// state.claim(&next, now, &mut numbers, &mut out)?;
/// state.evict(None, now, &mut numbers, &mut out);
/// assert_eq!(out.granted[0].request, next.request);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// The claim.
    pub request: RequestId,
    /// Its client.
    pub client: ClientId,
    /// The grant.
    pub grant: Grant,
}
