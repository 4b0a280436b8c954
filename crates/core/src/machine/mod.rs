//! The reference: what happens to one name, as a pure function of state, command and time.
//!
//! A [`NameState`] is the claims on one name in ticket order. Each step first drops what has run
//! out, applies the command, then grants from the head of the queue. There is no I/O and no clock
//! here: the memory store keeps these states in a map, the embedded store loads and saves them in
//! one transaction, and the other stores are refinements that are compared with it.

mod entry;
mod state;
#[cfg(test)]
mod tests;

pub use entry::{Ended, Entry, Phase};
pub use state::NameState;

use crate::store::{Event, Grant};
use crate::{ClientId, RequestId};

/// Where new sequence numbers come from.
pub trait Sequence {
    /// A number greater than `after` and than every number given for a name that has been forgotten.
    fn next(&mut self, after: u64) -> u64;
}

/// What a step did, beyond its reply.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Queued claims that this step granted: their clients are to be told.
    pub granted: Vec<Woken>,
}

/// A queued claim that was granted by somebody else's step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// The claim.
    pub request: RequestId,
    /// Its client.
    pub client: ClientId,
    /// The grant.
    pub grant: Grant,
}
