//! Re-entry needs a hold of the same owner, and keeps its token.

use std::collections::HashMap;

use super::{Hold, Index, Property, Violation, op_name};
use crate::history::{Acquire, Kind, Outcome};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut owners: HashMap<(&str, &str), Vec<&Hold<'_>>> = HashMap::new();
    for hold in &index.holds {
        let key = (hold.acquire.lock.as_str(), hold.acquire.owner.as_str());
        owners.entry(key).or_default().push(hold);
    }
    let again = index.acquires();
    let again = again.filter(|a| a.kind == Kind::Again && a.outcome == Outcome::Ok);
    again
        .filter_map(|again| {
            let holds = owners.get(&(again.lock.as_str(), again.owner.as_str()));
            judge(index, again, holds.map_or(&[], Vec::as_slice))
        })
        .collect()
}

/// The latest hold that was there when the re-entry was asked for must be the one re-entered.
fn judge(index: &Index<'_>, again: &Acquire, holds: &[&Hold<'_>]) -> Option<Violation> {
    let before = holds.partition_point(|hold| hold.acquire.complete <= again.invoke);
    let outer = holds.get(..before).and_then(<[_]>::last);
    let wrong = match outer {
        Some(hold) if Some(hold.token) == again.token => match hold.release {
            Some(release) if release.complete <= again.invoke => "had been released",
            _ => return None,
        },
        Some(_) => "has another token",
        None => "does not exist",
    };
    let token = again.token.unwrap_or_default();
    let outer_name = outer.map_or_else(|| "none".to_owned(), |hold| hold.name());
    let message = format!(
        "{} re-entered {} as {} with token {token}; the hold of that owner ({outer_name}) {wrong}",
        op_name(again.op),
        again.lock,
        again.owner,
    );
    let ops = outer
        .map(|hold| hold.acquire.op)
        .into_iter()
        .chain([again.op]);
    let span = (again.invoke, again.complete);
    Some(index.violation(
        Property::Reentrancy,
        &again.lock,
        span,
        ops.collect(),
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Event;

    fn nested(token: u64, invoke: u64) -> Vec<Event> {
        let outer = acquire(op(1, 1), "a", 5, (1, 2));
        let owner = outer.owner.clone();
        let again = Acquire {
            owner,
            kind: Kind::Again,
            ..acquire(op(1, 2), "a", token, (invoke, invoke + 1))
        };
        vec![
            Event::Acquire(outer),
            Event::Acquire(again),
            release(op(1, 1), (10, 11)),
        ]
    }

    #[test]
    fn the_same_token_inside_passes() {
        passes(nested(5, 3));
    }

    #[test]
    fn another_token_is_found() {
        fails(
            nested(6, 3),
            Property::Reentrancy,
            &["p1#2", "p1#1 (token 5)", "another token"],
        );
    }

    #[test]
    fn re_entry_after_the_end_is_found() {
        fails(
            nested(5, 20),
            Property::Reentrancy,
            &["p1#2", "had been released"],
        );
    }

    #[test]
    fn re_entry_without_a_hold_is_found() {
        let mut events = nested(5, 3);
        events.remove(0);
        fails(events, Property::Reentrancy, &["p1#2", "does not exist"]);
    }
}
