//! Fenced exclusion: one token for one grant, and a resource that checks tokens is never written in
//! turn-about.

use std::collections::{BTreeMap, HashMap};

use super::{Figures, Index, Property, Violation, op_name};
use crate::history::{Access, Event};

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    let mut found = duplicates(index);
    let mut resources: BTreeMap<&str, Vec<&Access>> = BTreeMap::new();
    for event in &index.history.events {
        if let Event::Access(access) = event {
            resources.entry(&access.resource).or_default().push(access);
        }
    }
    for (resource, accesses) in resources {
        found.extend(walk(index, resource, &accesses, figures));
    }
    found
}

fn duplicates(index: &Index<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if !index.has_tokens() {
        return found;
    }
    for (lock, holds) in index.by_lock() {
        let mut seen = HashMap::new();
        for hold in holds {
            let Some(other) = seen.insert(hold.token, hold) else {
                continue;
            };
            let (one, two) = (op_name(other.acquire.op), op_name(hold.acquire.op));
            let message = format!(
                "{one} and {two} were both granted {lock} with token {}",
                hold.token
            );
            let ops = vec![other.acquire.op, hold.acquire.op];
            let span = (other.acquire.complete, hold.acquire.complete);
            found.push(index.violation(Property::Fencing, lock, span, ops, message));
        }
    }
    found
}

/// Walks over what reached a resource, in order.
fn walk(
    index: &Index<'_>,
    resource: &str,
    accesses: &[&Access],
    figures: &mut Figures,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: Option<&Access> = None;
    // A write sets the value that it was based on, plus one.
    let mut value: Option<u64> = None;
    for access in accesses {
        if !access.accepted {
            figures.refused_writes += u64::from(access.write);
            continue;
        }
        let lost = access.write && value.is_some_and(|value| value != access.value);
        if access.write {
            value = Some(access.value + 1);
        }
        if !access.fenced {
            figures.updates_unfenced += u64::from(access.write);
            figures.lost_updates_unfenced += u64::from(lost);
            continue;
        }
        figures.updates_fenced += u64::from(access.write);
        figures.lost_updates_fenced += u64::from(lost);
        let falls = last.filter(|before| before.token > access.token);
        let before = falls.or(last.filter(|_| lost));
        if let Some(before) = before {
            let what = if lost {
                "lost an update"
            } else {
                "was used out of order"
            };
            let message = format!(
                "{resource} {what}: {} (token {}) at {}, after {} (token {}) at {}",
                op_name(access.op),
                access.token,
                index.time(access.at),
                op_name(before.op),
                before.token,
                index.time(before.at),
            );
            let ops = vec![before.op, access.op];
            let span = (before.at, access.at);
            found.push(index.violation(Property::Fencing, resource, span, ops, message));
        }
        last = Some(access);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn access(process: u64, at: u64, token: u64, write: bool, value: u64) -> Event {
        Event::Access(Access {
            resource: "r".to_owned(),
            fenced: true,
            write,
            op: op(process, 1),
            at,
            token,
            value,
            accepted: true,
        })
    }

    #[test]
    fn updates_in_token_order_pass() {
        let events = [(1, 1, 7), (2, 2, 8)].map(|(process, n, token)| {
            [
                access(process, n * 10, token, false, n - 1),
                access(process, n * 10 + 1, token, true, n - 1),
            ]
        });
        passes(events.concat());
    }

    #[test]
    fn an_older_token_after_a_newer_one_is_found() {
        let events = vec![access(1, 10, 8, true, 0), access(2, 20, 7, true, 1)];
        fails(
            events,
            Property::Fencing,
            &["p1#1 (token 8)", "p2#1 (token 7)", "out of order"],
        );
    }

    #[test]
    fn a_lost_update_is_found() {
        let events = vec![access(1, 10, 7, true, 0), access(2, 20, 8, true, 0)];
        fails(
            events,
            Property::Fencing,
            &["lost an update", "p1#1", "p2#1"],
        );
    }

    #[test]
    fn an_unfenced_resource_is_counted_only() {
        let mut events = vec![access(1, 10, 8, true, 0), access(2, 20, 7, true, 0)];
        for event in &mut events {
            if let Event::Access(access) = event {
                access.fenced = false;
            }
        }
        let found = findings(events);
        assert!(found.violations.is_empty());
        assert_eq!(found.figures.lost_updates_unfenced, 1);
    }

    #[test]
    fn one_token_for_two_grants_is_found() {
        let grant = |process, at| Event::Acquire(acquire(op(process, 1), "a", 5, (at, at + 10)));
        let events = vec![grant(1, 1), grant(2, 5)];
        let found = findings(events).violations;
        assert_eq!(found[0].property, Property::Fencing);
        assert!(found[0].message.contains("p1#1 and p2#1"), "{found:?}");
    }
}
