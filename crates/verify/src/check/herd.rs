//! A release wakes the next one only: what a lock asks of its store does not grow with the number of
//! those who wait for it.
//!
//! Requests are counted on the wire, for all processes together and a second at a time. An operation
//! that is under way may cost what the store promises for a whole acquisition, and as much again
//! whenever it has to say that it lives, which is three times in a lease, or to look whether its
//! turn has come, once in a second. If every release wakes all, each of `n` grants costs a request or
//! two of each of `w` waiters, which is `n·w` and not `n + w`. Busy polling shows in the same way.
//!
//! Seconds with a fault, and those within a lease after one, are not judged: clients repeat then what
//! was lost, as they should.

use std::collections::{HashMap, HashSet};

use super::{Figures, Index, Property, Violation};
use crate::history::{Event, Kind, Requests};

const SECOND: u64 = 1_000_000_000;

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    let Some(start) = index.history.start() else {
        return Vec::new();
    };
    let Some(promised) = start.requests else {
        return Vec::new();
    };
    let (operations, faults) = (operations(index), faults(index));
    let mut found = Vec::new();
    for event in &index.history.events {
        let Event::Requests(counted) = event else {
            continue;
        };
        let span = (counted.from, counted.at);
        if faults.touching(span) > 0 {
            continue;
        }
        let under_way = operations.touching(span);
        figures.calm_requests += counted.count;
        figures.calm_operations += under_way;
        // Clients have something to say beside their operations as well, such as that they live.
        let clients = u64::try_from(start.clients).unwrap_or(0);
        let bound = promised * (under_way + clients) * turns(span, start.lease);
        if counted.count > bound {
            found.push(tell(index, counted, under_way, bound));
        }
    }
    found
}

/// How often an operation may have had something to say within a time.
fn turns((from, until): (u64, u64), lease: u64) -> u64 {
    let span = until.saturating_sub(from);
    // A third of the lease is what the library promises; read from it, the check would follow its errors.
    // Rounded: a second by the clock of a busy machine is a little more.
    let times = |every: u64| (span + every / 2) / every.max(1);
    times(SECOND).max(times(lease / 3)).max(1)
}

/// Stretches of time, to be asked how many of them touch another one.
#[derive(Debug, Default)]
struct Spans {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Spans {
    fn of(spans: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut begins, mut ends): (Vec<_>, Vec<_>) = spans.unzip();
        begins.sort_unstable();
        ends.sort_unstable();
        Self { begins, ends }
    }

    fn touching(&self, (from, until): (u64, u64)) -> u64 {
        let begun = self.begins.partition_point(|begin| *begin <= until);
        let ended = self.ends.partition_point(|end| *end < from);
        u64::try_from(begun.saturating_sub(ended)).unwrap_or(u64::MAX)
    }
}

/// Acquisitions, each from its first word to its last; re-entries ask nothing of the store.
fn operations(index: &Index<'_>) -> Spans {
    let killed = index.history.killed();
    let open = |process: u32| killed.get(&process).copied().unwrap_or(u64::MAX);
    let held = index.holds.iter().map(|hold| {
        let last = hold.release.map(|release| release.complete);
        let last = last.or(hold.lost.map(|lost| lost.at));
        let end = last.unwrap_or_else(|| open(hold.acquire.process));
        (hold.acquire.op, (hold.acquire.invoke, end))
    });
    let mut all: HashMap<u64, (u64, u64)> = held.collect();
    for acquire in index.acquires().filter(|a| a.kind != Kind::Again) {
        let span = (acquire.invoke, acquire.complete);
        all.entry(acquire.op).or_insert(span);
    }
    // A multi-lock waits as one and ends as several.
    let groups = index.acquires().filter_map(|acquire| acquire.group);
    let groups: HashSet<u64> = groups.map(|(group, _)| group).collect();
    for event in &index.history.events {
        if let Event::Waiting(waiting) = event
            && !groups.contains(&waiting.op)
        {
            let span = (waiting.invoke, open(waiting.process));
            all.entry(waiting.op).or_insert(span);
        }
    }
    Spans::of(all.into_values())
}

fn faults(index: &Index<'_>) -> Spans {
    let after = index.longest_lease();
    // What is strange about a worker from its start makes nobody repeat anything.
    let faults = index.faults.iter().filter(|fault| !fault.is_condition());
    Spans::of(faults.map(|fault| (fault.at, fault.until.saturating_add(after))))
}

fn tell(index: &Index<'_>, counted: &Requests, under_way: u64, bound: u64) -> Violation {
    let Requests { from, at, count } = *counted;
    let here = |time: u64| from <= time && time <= at;
    let granted: Vec<_> = index
        .holds
        .iter()
        .filter(|hold| here(hold.acquire.complete))
        .collect();
    let lock = granted
        .first()
        .map_or("", |hold| hold.acquire.lock.as_str());
    let message = format!(
        "{count} requests between {} and {}, for {} grants and {under_way} operations under way: \
         {bound} are enough where a release wakes the next one only",
        index.time(from),
        index.time(at),
        granted.len(),
    );
    let ops = granted.iter().take(2).map(|hold| hold.acquire.op);
    index.violation(Property::Herd, lock, (from, at), ops.collect(), message)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Findings, check};
    use super::*;
    use crate::history::{Fault, History};

    /// A run of so many clients that promises five requests, with a lease of three seconds.
    fn promising(clients: usize) -> Event {
        let mut event = start();
        if let Event::Start(start) = &mut event {
            (start.requests, start.clients) = (Some(5), clients);
            start.lease = 3 * SECOND;
        }
        event
    }

    /// Twenty clients wait for one lock, which is granted ten times in the first second; so many
    /// requests are counted, and five are promised.
    fn run(requests: u64, more: Vec<Event>) -> Findings {
        let mut events = vec![promising(2)];
        for n in 0..20 {
            let granted = match n {
                0..10 => SECOND / 20 * (n + 1),
                _ => 3 * SECOND + 10 * n,
            };
            let number = op(1, n + 1);
            events.push(Event::Acquire(acquire(number, "a", n + 1, (1, granted))));
            events.push(release(number, (granted + 1, granted + 2)));
        }
        events.push(Event::Requests(Requests {
            from: 0,
            at: SECOND,
            count: requests,
        }));
        events.extend(more);
        check(&History::new(events))
    }

    #[track_caller]
    fn broken(findings: &Findings) -> Vec<Property> {
        findings.violations.iter().map(|v| v.property).collect()
    }

    #[test]
    fn a_handful_for_each_operation_passes_and_is_counted() {
        let findings = run(5 * (20 + 2), Vec::new());
        assert_eq!(broken(&findings), []);
        let figures = findings.figures;
        assert_eq!((figures.calm_requests, figures.calm_operations), (110, 20));
    }

    #[test]
    fn requests_of_all_for_each_grant_are_a_herd() {
        // Each of ten grants wakes all: each asks for the lock and for the next wake.
        let findings = run(10 * 20 * 2, Vec::new());
        assert_eq!(broken(&findings), [Property::Herd]);
        let message = &findings.violations[0].message;
        for words in [
            "400 requests",
            "10 grants",
            "20 operations",
            "110 are enough",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn one_more_than_enough_is_found() {
        assert_eq!(broken(&run(111, Vec::new())), [Property::Herd]);
    }

    #[test]
    fn a_clock_that_drifts_is_judged() {
        let fault = Event::Fault(Fault {
            kind: crate::history::FAST.to_owned(),
            harmless: true,
            ..Fault::default()
        });
        assert!(!broken(&run(400, vec![fault])).is_empty());
    }

    #[test]
    fn under_a_fault_and_a_lease_later_nothing_is_judged() {
        // The lease is a thousand.
        for (at, until, judged) in [(5, 7, false), (SECOND + 1, SECOND + 2, true)] {
            let fault = Event::Fault(Fault {
                kind: "worker killed".to_owned(),
                at,
                until,
                ..Fault::default()
            });
            assert_eq!(!broken(&run(400, vec![fault])).is_empty(), judged);
        }
        let before = |until| {
            let mut events = vec![promising(0)];
            events.push(Event::Fault(Fault {
                until,
                ..Fault::default()
            }));
            events.push(Event::Acquire(acquire(op(1, 1), "a", 1, (5000, 5001))));
            events.push(Event::Requests(Requests {
                from: 4000,
                at: 6000,
                count: 100,
            }));
            broken(&check(&History::new(events)))
        };
        assert_eq!(before(3000), []);
        assert_eq!(before(2999), [Property::Herd]);
    }

    #[test]
    fn operations_of_other_times_do_not_count() {
        let later = Event::Requests(Requests {
            from: 4 * SECOND,
            at: 5 * SECOND,
            count: 11,
        });
        assert_eq!(broken(&run(1, vec![later])), [Property::Herd]);
    }

    #[test]
    fn where_nothing_is_promised_nothing_is_judged() {
        let mut events = vec![Event::Requests(Requests {
            from: 1,
            at: 2,
            count: 1000,
        })];
        events.push(Event::Acquire(acquire(op(1, 1), "a", 1, (1, 2))));
        passes(events);
    }

    #[test]
    fn a_short_lease_allows_for_more() {
        assert_eq!(turns((0, SECOND), 30 * SECOND), 1);
        assert_eq!(turns((0, SECOND / 10 * 11), 3 * SECOND), 1);
        assert_eq!(turns((0, SECOND), 3 * SECOND / 2), 2);
        assert_eq!(turns((0, 4 * SECOND), 30 * SECOND), 4);
        assert_eq!(turns((0, 1), SECOND), 1);
    }

    #[test]
    fn a_longer_count_allows_for_more() {
        let long = |count| {
            let (from, at) = (4 * SECOND, 7 * SECOND);
            let counted = Event::Requests(Requests { from, at, count });
            broken(&run(1, vec![counted]))
        };
        assert_eq!(long(30), []);
        assert_eq!(long(31), [Property::Herd]);
    }
}
