//! A dead holder's lock passes on: within its lease and lock-delay, or at once where the store sees a
//! process end.
//!
//! Looked at where somebody waited for it all the time. The bound grows by what can really delay it: by the
//! time that the next holder's process or the engine was disturbed; by a lease for each fault of the engine, after
//! which leases may start anew; and by a lease for each other process that wanted the lock and was disturbed,
//! however often, for it may have been granted it in between. A machine that stood still delays everybody by that time.

use std::collections::{BTreeSet, HashMap};

use super::reach::covered;
use super::{Figures, Hold, Index, Property, Violation};
use crate::history::{CallKind, Fault, Kind};

/// Who asked for each lock, and when.
type Claims<'h> = HashMap<&'h str, Vec<(u64, u32)>>;

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    let killed = index.history.killed();
    let mut found = Vec::new();
    let mut claims: Claims<'_> = HashMap::new();
    for call in index.calls().filter(|call| call.call == CallKind::Claim) {
        let of = claims.entry(&call.lock).or_default();
        of.push((call.send, call.process));
    }
    claims.values_mut().for_each(|of| of.sort_unstable());
    for holds in index.by_lock().into_values() {
        for dead in &holds {
            let Some(&at) = killed.get(&dead.acquire.process) else {
                continue;
            };
            let held = dead.acquire.limit == 1 && dead.ended().is_none_or(|ended| ended > at);
            if let Some(next) = next(&holds, at).filter(|_| held) {
                let taken = next.acquire.complete - at;
                figures.recoveries.push(taken);
                found.extend(judge(index, &claims, dead, (at, next)));
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
    claims: &Claims<'_>,
    dead: &Hold<'_>,
    (at, next): (u64, &Hold<'_>),
) -> Option<Violation> {
    let granted = next.acquire.complete;
    let lock = dead.acquire.lock.as_str();
    let lease = dead.acquire.lease + dead.acquire.delay;
    let bound = match index.history.start().and_then(|start| start.at_once) {
        Some(at_once) => at_once + dead.acquire.delay + 4 * index.lag((at, granted)),
        None => lease + index.grace() + index.lag((at, granted)),
    };
    if granted <= at + bound + delays(index, claims, dead, (at, next)) {
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

/// How much later than that it may be, because of what else happened.
fn delays(
    index: &Index<'_>,
    claims: &Claims<'_>,
    dead: &Hold<'_>,
    (at, next): (u64, &Hold<'_>),
) -> u64 {
    let (granted, lock) = (next.acquire.complete, dead.acquire.lock.as_str());
    let lease = dead.acquire.lease + dead.acquire.delay;
    let near = |fault: &&Fault| fault.at <= granted && fault.until.saturating_add(lease) >= at;
    let direct = index.faults_of(Some(next.acquire.process), lock);
    let direct: Vec<_> = direct.filter(near).collect();
    let spans = direct.iter().map(|fault| (fault.at, fault.until)).collect();
    let at_once = index.at_once();
    let of_engine = direct
        .iter()
        .filter(|fault| fault.process.is_none() && !at_once);
    let of_engine = u64::try_from(of_engine.count()).unwrap_or(0);
    let wanted = claims.get(lock).map_or(&[][..], Vec::as_slice);
    let first = wanted.partition_point(|(send, _)| *send < at.saturating_sub(lease));
    let wanted = wanted
        .iter()
        .skip(first)
        .take_while(|(send, _)| *send <= granted);
    let mut others: BTreeSet<u32> = wanted.map(|(_, process)| *process).collect();
    others.remove(&next.acquire.process);
    others.remove(&dead.acquire.process);
    // Once for each: with every fault of everybody the bound would grow faster than time passes.
    others.retain(|other| {
        let mut faults = index.faults_of(Some(*other), lock).filter(near);
        faults.any(|fault| fault.process.is_some())
    });
    let disturbed = u64::try_from(others.len()).unwrap_or(0);
    covered(spans, (at, granted)) + lease * (of_engine + disturbed)
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

    fn fault(process: Option<u32>, at: u64, until: u64) -> Event {
        Event::Fault(Fault {
            kind: "trouble".to_owned(),
            at,
            until,
            process,
            ..Fault::default()
        })
    }

    fn with(granted: u64, more: Vec<Event>) -> Vec<Event> {
        [events(granted), more].concat()
    }

    #[test]
    fn the_kill_and_faults_of_bystanders_are_no_excuse() {
        for process in [1, 3] {
            let events = with(1601, vec![fault(Some(process), 500, 900)]);
            fails(events, Property::Recovery, &["p1#1 (token 1)"]);
        }
    }

    #[test]
    fn faults_of_the_next_holder_count_once_and_only_as_long_as_they_last() {
        let faults = vec![fault(Some(2), 400, 700), fault(Some(2), 600, 800)];
        passes(with(1900, faults.clone()));
        fails(with(1901, faults), Property::Recovery, &["p2#1 (token 2)"]);
    }

    #[test]
    fn after_a_fault_of_the_engine_leases_start_anew() {
        let faults = vec![fault(None, 600, 800)];
        passes(with(2800, faults.clone()));
        fails(with(2801, faults), Property::Recovery, &["p2#1 (token 2)"]);
    }

    #[test]
    fn a_machine_that_stood_still_delays_it_by_that_time() {
        let lag = Event::Lag(crate::history::Lag { at: 900, by: 300 });
        passes(with(1900, vec![lag.clone()]));
        fails(
            with(1901, vec![lag]),
            Property::Recovery,
            &["p2#1 (token 2)"],
        );
    }

    #[test]
    fn a_disturbed_process_that_wanted_the_lock_may_have_had_it() {
        let wanted = |process| match call(
            CallKind::Claim,
            "a",
            "other",
            (300, 310),
            crate::history::Answer::Queued,
            None,
        ) {
            Event::Call(call) => Event::Call(crate::history::Call { process, ..call }),
            other => other,
        };
        let paused = fault(Some(3), 500, 900);
        let granted = |at| with(at, vec![wanted(3), paused.clone()]);
        passes(granted(2600));
        fails(granted(2601), Property::Recovery, &["p1#1 (token 1)"]);
        let undisturbed = with(1601, vec![wanted(4), paused]);
        fails(undisturbed, Property::Recovery, &["p1#1 (token 1)"]);
    }

    #[test]
    fn at_once_is_at_once() {
        let at = |granted| {
            let mut all = with(granted, Vec::new());
            all.insert(
                0,
                Event::Start(crate::history::Start {
                    version: crate::history::VERSION,
                    tokens: true,
                    grace: 100,
                    lease: 1000,
                    at_once: Some(50),
                    ..crate::history::Start::default()
                }),
            );
            let history = crate::history::History::new(all);
            super::super::check(&history).violations
        };
        assert!(at(550).is_empty());
        assert_eq!(at(551).len(), 1);
    }

    #[test]
    fn a_hold_that_had_ended_does_not_count() {
        let mut events = events(1601);
        events.push(release(op(1, 1), (20, 30)));
        passes(events);
    }

    #[test]
    fn a_process_that_is_disturbed_again_and_again_counts_once() {
        let wanted = match call(
            CallKind::Claim,
            "a",
            "other",
            (300, 310),
            crate::history::Answer::Queued,
            None,
        ) {
            Event::Call(call) => Event::Call(crate::history::Call { process: 3, ..call }),
            other => other,
        };
        let more = vec![
            wanted,
            fault(Some(3), 500, 600),
            fault(Some(3), 700, 800),
            fault(Some(3), 900, 950),
        ];
        passes(with(2600, more.clone()));
        fails(with(2601, more), Property::Recovery, &["p1#1 (token 1)"]);
    }
}
