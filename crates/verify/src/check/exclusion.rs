//! Claimed validity: never more guards say `is_valid` at once than the capacity admits.

use super::{Hold, Index, Property, Violation};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let locks = index.by_lock().into_iter();
    locks
        .flat_map(|(lock, holds)| sweep(index, lock, &holds))
        .collect()
}

/// Walks over the claims in the order of their beginnings, with those that are open at hand.
fn sweep(index: &Index<'_>, lock: &str, holds: &[&Hold<'_>]) -> Vec<Violation> {
    let claims = holds.iter().filter_map(|hold| Some((hold.claim()?, *hold)));
    let mut claims: Vec<_> = claims.collect();
    claims.sort_by_key(|((from, _), _)| *from);
    let mut open: Vec<((u64, u64), &Hold<'_>)> = Vec::new();
    let mut found = Vec::new();
    for (claim, hold) in claims {
        // The number of open claims is bounded by the clients, so this walk is.
        open.retain(|((_, until), _)| *until > claim.0);
        let others: u64 = open.iter().map(|(_, hold)| units(hold)).sum();
        let limit = u64::from(hold.acquire.limit);
        if others + units(hold) > limit {
            found.push(overlap(index, lock, (claim, hold), &open));
        }
        open.push((claim, hold));
    }
    found
}

fn units(hold: &Hold<'_>) -> u64 {
    u64::from(hold.acquire.units)
}

fn overlap(
    index: &Index<'_>,
    lock: &str,
    (claim, hold): ((u64, u64), &Hold<'_>),
    open: &[((u64, u64), &Hold<'_>)],
) -> Violation {
    let tell = |((from, until), hold): &((u64, u64), &Hold<'_>)| {
        let (from, until) = (index.time(*from), index.time(*until));
        format!("{} said it was valid from {from} to {until}", hold.name())
    };
    let mut parties: Vec<_> = open.iter().map(tell).collect();
    parties.push(tell(&(claim, hold)));
    let capacity = match hold.acquire.limit {
        1 => "one holder".to_owned(),
        u32::MAX => "one writer or any number of readers".to_owned(),
        n => format!("{n} units"),
    };
    let message = format!("{lock} admits {capacity}, and {}", parties.join("; "));
    let ops = open.iter().map(|(_, hold)| hold.acquire.op);
    let ops = ops.chain([hold.acquire.op]).collect();
    let until = open.iter().map(|((_, until), _)| *until).max();
    let end = until.map_or(claim.1, |until| until.min(claim.1));
    index.violation(Property::Exclusion, lock, (claim.0, end), ops, message)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Acquire, Event};

    fn hold(process: u64, token: u64, span: (u64, u64), units: u32, limit: u32) -> [Event; 2] {
        let op = op(process, token);
        let (from, until) = span;
        let granted = acquire(op, "a", token, (from - 1, from));
        let granted = Acquire {
            units,
            limit,
            ..granted
        };
        [Event::Acquire(granted), release(op, (until, until + 1))]
    }

    fn mutex(process: u64, token: u64, span: (u64, u64)) -> [Event; 2] {
        hold(process, token, span, 1, 1)
    }

    #[test]
    fn holds_in_turn_pass() {
        passes([mutex(1, 1, (10, 20)), mutex(2, 2, (21, 30))].concat());
    }

    #[test]
    fn two_valid_at_once_are_named() {
        let events = [mutex(1, 1, (10, 30)), mutex(2, 2, (29, 40))].concat();
        let words = ["p1#1 (token 1)", "p2#2 (token 2)", "one holder"];
        fails(events, Property::Exclusion, &words);
    }

    #[test]
    fn a_hold_that_knew_it_was_lost_does_not_count() {
        let mut events = [mutex(1, 1, (10, 50)), mutex(2, 2, (29, 40))].concat();
        events.remove(1);
        events.extend([look(op(1, 1), 20, true), look(op(1, 1), 29, false)]);
        passes(events);
    }

    #[test]
    fn one_look_after_the_next_grant_is_enough() {
        let mut events = mutex(2, 2, (29, 40)).to_vec();
        events.push(Event::Acquire(acquire(op(1, 1), "a", 1, (9, 10))));
        events.push(look(op(1, 1), 30, true));
        fails(events, Property::Exclusion, &["p1#1", "p2#2"]);
    }

    #[test]
    fn a_moment_within_another_hold_counts() {
        let mut events = mutex(2, 2, (10, 40)).to_vec();
        events.push(Event::Acquire(acquire(op(1, 1), "a", 3, (12, 20))));
        fails(events, Property::Exclusion, &["p1#1", "p2#2"]);
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        let readers = [
            hold(1, 1, (10, 30), 1, u32::MAX),
            hold(2, 2, (15, 40), 1, u32::MAX),
        ];
        passes(readers.concat());
        let writer = hold(3, 3, (35, 50), u32::MAX, u32::MAX);
        let events = [readers.concat(), writer.to_vec()].concat();
        fails(events, Property::Exclusion, &["p2#2", "p3#3", "one writer"]);
    }

    #[test]
    fn a_semaphore_admits_its_number() {
        let three = [(1, (10, 30)), (2, (11, 30)), (3, (12, 30))];
        let three = three.map(|(n, span)| hold(n, n, span, 1, 3)).concat();
        passes(three.clone());
        let fourth = hold(4, 4, (20, 25), 1, 3).to_vec();
        fails(
            [three, fourth].concat(),
            Property::Exclusion,
            &["p4#4", "3 units"],
        );
    }

    #[test]
    fn a_fault_that_excuses_it_is_named() {
        let mut events = [mutex(1, 1, (10, 30)), mutex(2, 2, (29, 40))].concat();
        events.push(Event::Fault(crate::history::Fault {
            kind: "data lost".to_owned(),
            at: 5,
            until: 6,
            excuses: vec![Property::Exclusion],
            ..crate::history::Fault::default()
        }));
        let found = findings(events);
        assert!(found.violations.is_empty());
        assert_eq!(found.excused[0].excused_by.as_deref(), Some("data lost"));
    }
}
