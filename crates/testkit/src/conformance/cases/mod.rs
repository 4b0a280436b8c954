//! The cases, one file for each subject matter.

mod cancel;
mod closing;
mod drops;
mod election;
mod events;
mod evict;
mod exclusion;
mod fifo;
mod forked;
mod inspect;
mod lease;
mod leftovers;
mod lock_delay;
mod lost;
mod multi;
mod names;
mod predecessor;
mod promises;
mod reentrancy;
mod refusal;
mod requests;
mod semaphore;
mod shared;
mod stale;
mod tokens;
mod waiting;

/// What every file of cases uses.
mod prelude {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::time::Duration;

    pub(super) use clinch_core::memory::{Fault, Op};
    pub(super) use clinch_core::store::{Capability, Ending};
    pub(super) use clinch_core::{ErrorKind, LostReason, ReleaseReply, Status};

    pub(super) use crate::conformance::case::cases;
    pub(super) use crate::conformance::{Client, Ctx, Need, Outcome};
    pub(super) use crate::holder::Claiming;
    pub(super) use crate::wait::{PATIENCE, drop_after, eventually, soon};
}

/// Every table.
pub(super) const ALL: &[&[super::Case]] = &[
    exclusion::CASES,
    waiting::CASES,
    cancel::CASES,
    closing::CASES,
    fifo::CASES,
    reentrancy::CASES,
    shared::CASES,
    semaphore::CASES,
    multi::CASES,
    election::CASES,
    lease::CASES,
    lost::CASES,
    lock_delay::CASES,
    predecessor::CASES,
    tokens::CASES,
    requests::CASES,
    stale::CASES,
    leftovers::CASES,
    names::CASES,
    inspect::CASES,
    evict::CASES,
    events::CASES,
    drops::CASES,
    forked::CASES,
    refusal::CASES,
    promises::CASES,
];
