//! What a store does not promise under a fault is no violation: within the fault, and a lease after it.

use std::collections::{BTreeMap, HashMap};

use super::reach::{is_in, slot};
use super::{Figures, Index, Violation};
use crate::history::{Fault, Outcome};

/// From and until.
type Span = (u64, u64);

/// A fault that admits this violation: of its time, its lock and its slot.
pub(super) fn of(index: &Index<'_>, violation: &Violation) -> Option<String> {
    let after = index.lease_of(&violation.lock);
    let slot = slot(index.namespace(), &violation.lock);
    let fault = index.faults.iter().find(|fault| {
        let until = end(fault).saturating_add(after);
        fault.excuses.contains(&violation.property)
            && fault
                .lock
                .as_ref()
                .is_none_or(|lock| *lock == violation.lock)
            && fault.slots.as_ref().is_none_or(|slots| is_in(slots, slot))
            && fault.at <= violation.until
            && violation.from <= until
    });
    fault.map(|fault| fault.kind.clone())
}

/// How much of a run lies under excuses, and how many grants do not.
pub(super) fn measure(index: &Index<'_>, figures: &mut Figures) {
    let after = index.lease();
    // By the slots that they are about: all, without any.
    let mut wide: BTreeMap<&[(u16, u16)], Vec<Span>> = BTreeMap::new();
    let mut of_locks: HashMap<&str, Vec<Span>> = HashMap::new();
    let mut any = Vec::new();
    for fault in index.faults.iter().filter(|f| !f.excuses.is_empty()) {
        let span = (fault.at, end(fault).saturating_add(after));
        match &fault.lock {
            Some(lock) => extend(of_locks.entry(lock).or_default(), span),
            None => {
                let slots = fault.slots.as_deref().unwrap_or_default();
                extend(wide.entry(slots).or_default(), span);
                extend(&mut any, span);
            }
        }
    }
    figures.excused = any.iter().map(|(from, until)| until - from).sum();
    let mut slots: HashMap<&str, u16> = HashMap::new();
    let granted = index.acquires().filter(|a| a.outcome == Outcome::Ok);
    let unexcused = granted.filter(|acquire| {
        let (lock, at) = (acquire.lock.as_str(), acquire.complete);
        let own = of_locks.get(lock).map_or(&[][..], Vec::as_slice);
        if within(own, at) {
            return false;
        }
        let mut wide = wide.iter().filter(|(_, spans)| within(spans, at));
        !wide.any(|(of, _)| {
            let slot = slots.entry(lock);
            of.is_empty() || is_in(of, *slot.or_insert_with(|| slot_of(index, lock)))
        })
    });
    figures.grants_unexcused = u64::try_from(unexcused.count()).unwrap_or(u64::MAX);
}

fn slot_of(index: &Index<'_>, lock: &str) -> u16 {
    slot(index.namespace(), lock)
}

/// Adds a span. Faults are in order, so only the last one can overlap with the next.
fn extend(spans: &mut Vec<Span>, (from, until): Span) {
    match spans.last_mut() {
        Some(last) if last.1 >= from => last.1 = last.1.max(until),
        _ => spans.push((from, until)),
    }
}

/// When what it excuses has happened: a failover forgets at one moment, however long it takes.
fn end(fault: &Fault) -> u64 {
    fault.excused_until.unwrap_or(fault.until)
}

fn within(spans: &[Span], at: u64) -> bool {
    let begun = spans.partition_point(|(from, _)| *from <= at);
    let last = begun.checked_sub(1).and_then(|last| spans.get(last));
    last.is_some_and(|(_, until)| at <= *until)
}

#[cfg(test)]
mod tests {
    use super::super::Property;
    use super::super::testing::*;
    use crate::history::{Event, Fault};

    fn fault(at: u64, until: u64, lock: Option<&str>) -> Event {
        Event::Fault(Fault {
            kind: "trouble".to_owned(),
            at,
            until,
            lock: lock.map(str::to_owned),
            excuses: vec![Property::Exclusion],
            ..Fault::default()
        })
    }

    /// A lease is 1000.
    fn grants(lock: &str) -> Vec<Event> {
        let at = [1, 6000, 7050, 9000];
        let grant = |n: u64, at| Event::Acquire(acquire(op(n, 1), lock, n, (at, at + 1)));
        at.into_iter()
            .zip(1..)
            .map(|(at, n)| grant(n, at))
            .collect()
    }

    #[test]
    fn overlapping_faults_count_once_and_a_lease_after_them_counts() {
        let faults = vec![fault(5000, 6000, None), fault(5500, 6100, None)];
        let figures = findings([grants("a"), faults].concat()).figures;
        assert_eq!((figures.excused, figures.grants_unexcused), (2100, 2));
    }

    #[test]
    fn a_fault_of_one_lock_excuses_that_lock() {
        let faults = vec![fault(5000, 6100, Some("a"))];
        let figures = findings([grants("a"), faults.clone()].concat()).figures;
        assert_eq!((figures.excused, figures.grants_unexcused), (0, 2));
        let figures = findings([grants("b"), faults].concat()).figures;
        assert_eq!((figures.excused, figures.grants_unexcused), (0, 4));
    }

    #[test]
    fn a_violation_is_excused_at_its_time_and_for_its_property_only() {
        let overlap = |at: u64| {
            let hold = |n| Event::Acquire(acquire(op(n, 1), "a", n, (at, at + n)));
            let release = |n: u64| release(op(n, 1), (at + 50 + n, at + 60 + n));
            vec![hold(1), hold(2), release(1), release(2)]
        };
        let found = |at| findings([overlap(at), vec![fault(5000, 6000, None)]].concat());
        assert_eq!(found(5500).excused.len(), 1);
        assert_eq!(found(6900).excused.len(), 1);
        assert_eq!(found(7100).violations.len(), 1);
    }

    #[test]
    fn a_fault_of_some_slots_excuses_the_locks_in_them() {
        let overlap = || {
            let hold = |n| Event::Acquire(acquire(op(n, 1), "a", n, (5500, 5500 + n)));
            let release = |n: u64| release(op(n, 1), (5550 + n, 5560 + n));
            vec![hold(1), hold(2), release(1), release(2)]
        };
        let mine = super::super::reach::slot("", "a");
        let of = |slots| match fault(5000, 6000, None) {
            Event::Fault(fault) => Event::Fault(Fault {
                slots: Some(vec![slots]),
                ..fault
            }),
            other => other,
        };
        let found = |slots| findings([overlap(), vec![of(slots)]].concat());
        assert_eq!(found((mine, mine)).excused.len(), 1);
        assert_eq!(found((mine + 1, mine + 9)).violations.len(), 1);
        // The grants of other slots are judged, and counted as such.
        let figures = |slots| findings([grants("a"), vec![of(slots)]].concat()).figures;
        let here = figures((mine, mine));
        assert_eq!((here.excused, here.grants_unexcused), (2000, 3));
        assert_eq!(figures((mine + 1, mine + 9)).grants_unexcused, 4);
    }
}
