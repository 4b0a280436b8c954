//! What a store does not promise under a fault is no violation: within the fault, and a lease after it.

use std::collections::BTreeMap;

use super::{Figures, Index, Violation};
use crate::history::{Fault, Outcome};

/// From and until.
type Span = (u64, u64);

/// A fault that admits this violation.
pub(super) fn of(index: &Index<'_>, violation: &Violation) -> Option<String> {
    let after = index.lease_of(&violation.lock);
    let fault = index.faults.iter().find(|fault| {
        let until = end(fault).saturating_add(after);
        fault.excuses.contains(&violation.property)
            && fault
                .lock
                .as_ref()
                .is_none_or(|lock| *lock == violation.lock)
            && fault.at <= violation.until
            && violation.from <= until
    });
    fault.map(|fault| fault.kind.clone())
}

/// How much of a run lies under excuses, and how many grants do not.
pub(super) fn measure(index: &Index<'_>, figures: &mut Figures) {
    let after = index.lease();
    let mut spans: BTreeMap<Option<&str>, Vec<Span>> = BTreeMap::new();
    for fault in index.faults.iter().filter(|f| !f.excuses.is_empty()) {
        let of = spans.entry(fault.lock.as_deref()).or_default();
        // Faults are in order, so only the last span can overlap with the next one.
        let until = end(fault).saturating_add(after);
        match of.last_mut() {
            Some(last) if last.1 >= fault.at => last.1 = last.1.max(until),
            _ => of.push((fault.at, until)),
        }
    }
    let all = spans.get(&None).map_or(&[][..], Vec::as_slice);
    figures.excused = all.iter().map(|(from, until)| until - from).sum();
    let granted = index.acquires().filter(|a| a.outcome == Outcome::Ok);
    let unexcused = granted.filter(|acquire| {
        let own = spans.get(&Some(acquire.lock.as_str()));
        let own = own.map_or(&[][..], Vec::as_slice);
        !within(all, acquire.complete) && !within(own, acquire.complete)
    });
    figures.grants_unexcused = u64::try_from(unexcused.count()).unwrap_or(u64::MAX);
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
}
