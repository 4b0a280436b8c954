//! What a history must not contain.
//!
//! One small file for each property of `docs/verification.md`. A checker sorts and walks: it is
//! linear, or n·log n. It names the operations that contradict each other as `p3#17`, the 17th
//! operation of process 3.

mod exclusion;
mod excuses;
mod false_loss;
mod fence;
mod fifo;
mod herd;
mod idempotence;
mod index;
mod late_loss;
mod left_behind;
mod multi_lock;
mod order;
mod orphans;
mod reach;
mod recovery;
mod reentrancy;
mod strays;
mod stuck;
mod terms;
#[cfg(test)]
mod testing;

use serde::{Deserialize, Serialize};

pub(crate) use index::{Hold, Index, op_name};

use crate::history::History;

/// A promise, and the name of what breaks it.
///
/// ```
/// let text = clinch_verify::Property::TokenOrder.as_str();
/// assert_eq!(text, "token-order");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Property {
    /// Two grants never have one token, and a fenced resource is never written in turn-about.
    Fencing,
    /// A grant that is asked for after another one that it excludes has the greater token.
    TokenOrder,
    /// Never more guards say `is_valid` at once than the lock's capacity admits.
    Exclusion,
    /// One request is granted once.
    Idempotence,
    /// A guard never says `is_valid` after its lease, counted from the last acknowledged send.
    LateLoss,
    /// Re-entry keeps the token, and needs a hold.
    Reentrancy,
    /// All of a multi-lock's names, or none.
    MultiLock,
    /// First come, first served.
    Fifo,
    /// A dead holder's lock passes on within its lease.
    Recovery,
    /// Nobody waits for a lock that nobody holds.
    Stuck,
    /// When every client has gone, the store is empty.
    LeftBehind,
    /// What the store lists belongs to an open operation of a process that lives, or goes within a few
    /// round trips.
    Orphans,
    /// No loss is reported that was none.
    FalseLoss,
    /// Observers of an election never see terms go back.
    Terms,
    /// A release wakes the next one only: requests do not grow with the number of those who wait.
    Herd,
}

impl Property {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fencing => "fencing",
            Self::TokenOrder => "token-order",
            Self::Exclusion => "exclusion",
            Self::Idempotence => "idempotence",
            Self::LateLoss => "late-loss",
            Self::Reentrancy => "reentrancy",
            Self::MultiLock => "multi-lock",
            Self::Fifo => "fifo",
            Self::Recovery => "recovery",
            Self::Stuck => "stuck",
            Self::LeftBehind => "left-behind",
            Self::Orphans => "orphans",
            Self::FalseLoss => "false-loss",
            Self::Terms => "terms",
            Self::Herd => "herd",
        }
    }
}

/// Operations that contradict a promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) lock: String,
    pub(crate) message: String,
    /// The operations that it is about.
    pub(crate) ops: Vec<u64>,
    /// The time that it is about.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The fault under which the store does not promise this.
    pub(crate) excused_by: Option<String>,
}

/// What is worth knowing and breaks no promise.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// From the kill of a holder to the next grant, in nanoseconds, ascending.
    pub(crate) recoveries: Vec<u64>,
    /// How much later than its deadline a holder was told of a loss, in nanoseconds, ascending.
    pub(crate) late_signals: Vec<u64>,
    /// Grants with a smaller token than one that was complete before they were asked for, where both
    /// may be held at once.
    pub(crate) unordered_beside: u64,
    /// Writes that a fenced resource refused.
    pub(crate) refused_writes: u64,
    /// Updates that a fenced and an unfenced resource lost.
    pub(crate) lost_updates_fenced: u64,
    pub(crate) lost_updates_unfenced: u64,
    /// Updates of the unfenced resource in all.
    pub(crate) updates_unfenced: u64,
    pub(crate) updates_fenced: u64,
    /// Requests and operations of times that no fault was near, if requests were counted.
    pub(crate) calm_requests: u64,
    pub(crate) calm_operations: u64,
    /// The time under faults that excuse something, and a lease after each, in nanoseconds.
    pub(crate) excused: u64,
    /// Grants at other times: only of these does a run say all that it checks.
    pub(crate) grants_unexcused: u64,
}

/// What the checkers say of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    pub(crate) excused: Vec<Violation>,
    pub(crate) figures: Figures,
}

/// Checks everything.
pub(crate) fn check(history: &History) -> Findings {
    let index = Index::new(history);
    let mut figures = Figures::default();
    let mut found = Vec::new();
    found.extend(fence::check(&index, &mut figures));
    found.extend(order::check(&index, &mut figures));
    found.extend(exclusion::check(&index));
    found.extend(idempotence::check(&index));
    found.extend(late_loss::check(&index, &mut figures));
    found.extend(reentrancy::check(&index));
    found.extend(multi_lock::check(&index));
    found.extend(fifo::check(&index));
    found.extend(recovery::check(&index, &mut figures));
    found.extend(stuck::check(&index));
    found.extend(left_behind::check(&index));
    found.extend(strays::check(&index));
    found.extend(orphans::check(&index));
    found.extend(false_loss::check(&index));
    found.extend(terms::check(&index));
    found.extend(herd::check(&index, &mut figures));
    found.sort_by_key(|violation| violation.from);
    for violation in &mut found {
        violation.excused_by = excuses::of(&index, violation);
    }
    excuses::measure(&index, &mut figures);
    let (excused, violations) = found.into_iter().partition(|v| v.excused_by.is_some());
    Findings {
        violations,
        excused,
        figures,
    }
}
