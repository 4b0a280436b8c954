//! A multi-lock has all of its names, or none.

use std::collections::{BTreeMap, BTreeSet};

use super::{Index, Property, Violation, op_name};
use crate::history::{Acquire, Outcome};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut groups: BTreeMap<u64, (usize, Vec<&Acquire>)> = BTreeMap::new();
    for acquire in index.acquires() {
        if let Some((group, names)) = acquire.group {
            let entry = groups.entry(group).or_insert((names, Vec::new()));
            entry.1.push(acquire);
        }
    }
    let groups = groups.into_iter();
    groups
        .filter_map(|(group, (names, parts))| judge(index, group, names, &parts))
        .collect()
}

fn judge(index: &Index<'_>, group: u64, names: usize, parts: &[&Acquire]) -> Option<Violation> {
    let granted = parts
        .iter()
        .filter(|part| part.outcome == Outcome::Ok && part.token.is_some());
    let granted: BTreeSet<_> = granted.map(|part| part.lock.as_str()).collect();
    if granted.is_empty() || granted.len() == names {
        return None;
    }
    let first = parts.first()?;
    let all: BTreeSet<_> = parts.iter().map(|part| part.lock.as_str()).collect();
    let missing: Vec<_> = all.difference(&granted).copied().collect();
    let granted: Vec<_> = granted.into_iter().collect();
    let message = format!(
        "{} asked for {names} names at once and has {}, without {}",
        op_name(group),
        granted.join(", "),
        if missing.is_empty() {
            "the others".to_owned()
        } else {
            missing.join(", ")
        },
    );
    let span = (first.invoke, first.complete);
    let ops = parts.iter().map(|part| part.op).collect();
    Some(index.violation(Property::MultiLock, &first.lock, span, ops, message))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Event;

    fn part(n: u64, lock: &str, outcome: Outcome) -> Event {
        let part = acquire(op(1, n), lock, n, (1, 2));
        let token = part.token.filter(|_| outcome == Outcome::Ok);
        Event::Acquire(Acquire {
            group: Some((op(1, 9), 2)),
            outcome,
            token,
            ..part
        })
    }

    #[test]
    fn all_or_none_passes() {
        passes(vec![part(1, "a", Outcome::Ok), part(2, "b", Outcome::Ok)]);
        passes(vec![
            part(1, "a", Outcome::Fail),
            part(2, "b", Outcome::Fail),
        ]);
    }

    #[test]
    fn a_part_is_found() {
        let events = vec![part(1, "a", Outcome::Ok), part(2, "b", Outcome::Fail)];
        fails(events, Property::MultiLock, &["p1#9", "has a", "without b"]);
    }
}
