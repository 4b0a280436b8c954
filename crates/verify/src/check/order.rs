//! Token order in real time: a grant that was asked for after another one was complete, and that
//! excludes it, has the greater token.
//!
//! Grants that may be held side by side (permits of a semaphore, readers) are counted only: no
//! resource can tell from their tokens who came later, and the engine may give a grant that it had in
//! hand to a task that asked for one since.

use std::collections::BTreeMap;

use super::{Figures, Hold, Index, Property, Violation};

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    if !index.has_tokens() {
        return Vec::new();
    }
    let locks = index.by_lock().into_iter();
    locks
        .flat_map(|(lock, holds)| walk(index, lock, &holds, figures))
        .collect()
}

/// Walks over the grants by the time of asking, with the greatest token completed before that, for
/// each number of units.
fn walk(
    index: &Index<'_>,
    lock: &str,
    completed: &[&Hold<'_>],
    figures: &mut Figures,
) -> Vec<Violation> {
    let mut asked = completed.to_vec();
    asked.sort_by_key(|hold| hold.acquire.invoke);
    let mut completed = completed.iter().peekable();
    let mut greatest: BTreeMap<u32, &Hold<'_>> = BTreeMap::new();
    let mut found = Vec::new();
    for later in asked {
        while let Some(hold) = completed.next_if(|h| h.acquire.complete < later.acquire.invoke) {
            let entry = greatest.entry(hold.acquire.units).or_insert(hold);
            if entry.token < hold.token {
                *entry = hold;
            }
        }
        // Those with more units than this one leaves room for.
        let room = later.acquire.limit.saturating_sub(later.acquire.units);
        let falls = |hold: &&&Hold<'_>| hold.token >= later.token;
        let beside = greatest
            .range(..=room)
            .map(|(_, hold)| hold)
            .filter(falls)
            .count();
        figures.unordered_beside += u64::from(beside > 0);
        let excluded = greatest
            .range(room.saturating_add(1)..)
            .map(|(_, hold)| hold);
        let Some(earlier) = excluded.filter(falls).max_by_key(|hold| hold.token) else {
            continue;
        };
        let message = format!(
            "{} was granted at {}, before {} asked at {}",
            earlier.name(),
            index.time(earlier.acquire.complete),
            later.name(),
            index.time(later.acquire.invoke),
        );
        let ops = vec![earlier.acquire.op, later.acquire.op];
        let span = (earlier.acquire.complete, later.acquire.complete);
        found.push(index.violation(Property::TokenOrder, lock, span, ops, message));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Acquire, Event};

    fn grant(process: u64, token: u64, times: (u64, u64)) -> Event {
        Event::Acquire(acquire(op(process, 1), "a", token, times))
    }

    #[test]
    fn rising_tokens_pass_and_grants_at_once_may_have_any() {
        passes(vec![grant(1, 1, (1, 2)), grant(2, 2, (3, 4))]);
        passes(vec![grant(1, 2, (1, 5)), grant(2, 1, (3, 4))]);
    }

    #[test]
    fn a_token_that_falls_is_found_across_others() {
        let events = vec![
            grant(1, 9, (1, 2)),
            grant(2, 10, (3, 9)),
            grant(3, 4, (5, 6)),
        ];
        fails(
            events,
            Property::TokenOrder,
            &["p1#1 (token 9)", "p3#1 (token 4)"],
        );
    }

    #[test]
    fn permits_that_fit_together_are_counted_and_those_that_do_not_are_found() {
        let permit = |process, token, times, units| {
            let permit = acquire(op(process, 1), "a", token, times);
            Event::Acquire(Acquire {
                units,
                limit: 3,
                deadline: None,
                ..permit
            })
        };
        let found = findings(vec![permit(1, 9, (1, 2), 1), permit(2, 4, (5, 6), 2)]);
        assert!(found.violations.is_empty(), "{:?}", found.violations);
        assert_eq!(found.figures.unordered_beside, 1);
        let events = vec![permit(1, 9, (1, 2), 2), permit(2, 4, (5, 6), 2)];
        fails(events, Property::TokenOrder, &["p1#1", "p2#1"]);
    }

    #[test]
    fn other_locks_have_their_own_order() {
        let other = Event::Acquire(acquire(op(2, 1), "b", 1, (3, 4)));
        passes(vec![grant(1, 9, (1, 2)), other]);
    }
}
