//! A dead holder's lock passes on within its lease and lock-delay.
//!
//! Looked at where somebody waited for it all the time. Other faults at the same time are added to the
//! bound, each with a lease: a paused waiter may have been granted the lock in between.

use super::{Figures, Hold, Index, Property, Violation};
use crate::history::Kind;

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    let killed = index.history.killed();
    let mut found = Vec::new();
    for (lock, holds) in index.by_lock() {
        for dead in &holds {
            let Some(&at) = killed.get(&dead.acquire.process) else {
                continue;
            };
            let held = dead.acquire.limit == 1 && dead.ended().is_none_or(|ended| ended > at);
            if let Some(next) = next(&holds, at).filter(|_| held) {
                let taken = next.acquire.complete - at;
                figures.recoveries.push(taken);
                found.extend(judge(index, lock, dead, (at, next)));
            }
        }
    }
    figures.recoveries.sort_unstable();
    found
}

/// The first grant after a moment; `None` unless it was waited for at that moment.
fn next<'a, 'h>(holds: &[&'a Hold<'h>], at: u64) -> Option<&'a Hold<'h>> {
    let after = holds.partition_point(|hold| hold.acquire.complete <= at);
    let next = *holds.get(after)?;
    (next.acquire.kind == Kind::Wait && next.acquire.invoke <= at).then_some(next)
}

fn judge(
    index: &Index<'_>,
    lock: &str,
    dead: &Hold<'_>,
    (at, next): (u64, &Hold<'_>),
) -> Option<Violation> {
    let granted = next.acquire.complete;
    let lease = dead.acquire.lease + dead.acquire.delay;
    // The kill itself is no other fault.
    let faults = index.history.faults();
    let faults = faults.filter(|f| f.process != Some(dead.acquire.process) || f.at != at);
    let faults = faults.filter(|f| f.at <= granted && f.until.saturating_add(lease) >= at);
    let others: u64 = faults.map(|f| (f.until - f.at).saturating_add(lease)).sum();
    let bound = at + lease + index.grace() + others;
    if granted <= bound {
        return None;
    }
    let message = format!(
        "{} was killed at {} while it held {lock}; {} waited since {} and was granted it only at {}",
        dead.name(),
        index.time(at),
        next.name(),
        index.time(next.acquire.invoke),
        index.time(granted),
    );
    let ops = vec![dead.acquire.op, next.acquire.op];
    Some(index.violation(Property::Recovery, lock, (at, granted), ops, message))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Event, Exit, Fault};

    fn events(granted: u64) -> Vec<Event> {
        vec![
            Event::Acquire(acquire(op(1, 1), "a", 1, (1, 2))),
            Event::Exit(Exit {
                process: 1,
                at: 500,
                killed: true,
            }),
            Event::Acquire(acquire(op(2, 1), "a", 2, (10, granted))),
        ]
    }

    #[test]
    fn a_grant_within_the_lease_passes_and_is_counted() {
        let found = findings(events(1500));
        assert!(found.violations.is_empty(), "{:?}", found.violations);
        assert_eq!(found.figures.recoveries, [1000]);
    }

    #[test]
    fn a_grant_after_it_is_found() {
        fails(
            events(1601),
            Property::Recovery,
            &["p1#1 (token 1)", "p2#1 (token 2)", "killed"],
        );
    }

    #[test]
    fn the_kill_is_no_excuse_and_another_fault_is() {
        let fault = |process| {
            let (at, until) = (500, 500);
            Event::Fault(Fault {
                kind: "worker killed".to_owned(),
                at,
                until,
                process: Some(process),
                ..Fault::default()
            })
        };
        let with = |granted, process| [events(granted), vec![fault(process)]].concat();
        fails(with(1601, 1), Property::Recovery, &["p1#1 (token 1)"]);
        passes(with(2600, 3));
        fails(with(2601, 3), Property::Recovery, &["p1#1 (token 1)"]);
    }

    #[test]
    fn a_hold_that_had_ended_does_not_count() {
        let mut events = events(1601);
        events.push(release(op(1, 1), (20, 30)));
        passes(events);
    }
}
