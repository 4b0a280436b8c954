//! Nobody waits for a lock that nobody holds: when the faults are over, every wait ends.

use std::collections::{BTreeMap, BTreeSet};

use super::{Index, Property, Violation, op_name};
use crate::history::{Event, Waiting};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let (Some(healed), Some(end)) = (index.history.healed(), index.history.end()) else {
        return Vec::new();
    };
    // A multi-lock waits as one and ends as several.
    let ended: BTreeSet<_> = index
        .acquires()
        .flat_map(|acquire| [Some(acquire.op), acquire.group.map(|(group, _)| group)])
        .flatten()
        .collect();
    let killed = index.history.killed();
    let mut open: BTreeMap<u64, &Waiting> = BTreeMap::new();
    for event in &index.history.events {
        if let Event::Waiting(waiting) = event
            && !ended.contains(&waiting.op)
            && !killed.contains_key(&waiting.process)
        {
            open.insert(waiting.op, waiting);
        }
    }
    let lease = index
        .longest_lease()
        .max(index.history.start().map_or(0, |start| start.lease));
    let patience = lease + index.grace();
    let stuck = open.into_values();
    let stuck = stuck.filter(|w| end.saturating_sub(healed.max(w.invoke)) > patience);
    stuck
        .map(|waiting| tell(index, waiting, (healed, end)))
        .collect()
}

fn tell(index: &Index<'_>, waiting: &Waiting, (healed, end): (u64, u64)) -> Violation {
    let (op, lock) = (op_name(waiting.op), &waiting.lock);
    let holders = index.holds.iter().rev();
    let last = holders
        .filter(|hold| hold.acquire.lock == *lock)
        .max_by_key(|h| h.acquire.complete);
    let ops = last
        .map(|hold| hold.acquire.op)
        .into_iter()
        .chain([waiting.op])
        .collect();
    let last = last.map_or_else(|| "nobody".to_owned(), |hold| hold.name());
    let message = format!(
        "{op} waits for {lock} since {}, and still at {}, though no fault lasted longer than {}; the last to hold it was {last}",
        index.time(waiting.invoke),
        index.time(end),
        index.time(healed),
    );
    let span = (waiting.invoke, end);
    index.violation(Property::Stuck, lock, span, ops, message)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Acquire, Exit, Outcome};

    fn events(end: u64) -> Vec<Event> {
        let waiting = Waiting {
            op: op(2, 7),
            process: 2,
            lock: "a".to_owned(),
            invoke: 5,
            at: 6,
        };
        vec![
            Event::Acquire(acquire(op(1, 1), "a", 1, (1, 2))),
            Event::Waiting(waiting),
            Event::Healed { at: 100 },
            Event::End { at: end },
        ]
    }

    #[test]
    fn a_wait_that_may_still_end_passes() {
        passes(events(1200));
    }

    #[test]
    fn a_wait_without_end_is_found() {
        fails(events(1201), Property::Stuck, &["p2#7", "p1#1 (token 1)"]);
    }

    #[test]
    fn the_dead_do_not_wait() {
        let mut events = events(5000);
        events.push(Event::Exit(Exit {
            process: 2,
            at: 50,
            killed: true,
        }));
        passes(events);
    }

    #[test]
    fn a_multi_lock_that_ended_passes() {
        let mut events = events(5000);
        events.push(Event::Acquire(Acquire {
            group: Some((op(2, 7), 1)),
            outcome: Outcome::Fail,
            ..acquire(op(2, 8), "a", 2, (5, 200))
        }));
        passes(events);
    }

    #[test]
    fn a_wait_that_ended_passes() {
        let mut events = events(5000);
        events.push(Event::Acquire(acquire(op(2, 7), "a", 2, (5, 200))));
        events.push(release(op(1, 1), (10, 11)));
        passes(events);
    }
}
