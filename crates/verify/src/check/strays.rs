//! Guards that nobody honours: those of a client that has been closed, and copies of a guard in a child
//! that was forked.

use std::collections::HashMap;

use super::{Index, Property, Violation};
use crate::history::{Event, Forked};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut closed: HashMap<(u32, u32), u64> = HashMap::new();
    let mut found = Vec::new();
    for event in &index.history.events {
        match event {
            Event::Closed(client) => {
                closed.insert((client.process, client.client), client.at);
            }
            Event::Forked(child) if child.valid || child.granted || child.released => {
                found.push(tell_child(index, child));
            }
            _ => {}
        }
    }
    for hold in &index.holds {
        let client = (hold.acquire.process, hold.acquire.client);
        let Some(&at) = closed.get(&client) else {
            continue;
        };
        if let Some(seen) = hold.seen_valid().find(|seen| *seen > at) {
            let message = format!(
                "{} said at {} that it was valid; its client had been closed by {}",
                hold.name(),
                index.time(seen),
                index.time(at),
            );
            let (lock, ops) = (&hold.acquire.lock, vec![hold.acquire.op]);
            found.push(index.violation(Property::LateLoss, lock, (at, seen), ops, message));
        }
    }
    found
}

fn tell_child(index: &Index<'_>, child: &Forked) -> Violation {
    let what = match (child.granted, child.released) {
        (true, _) => "was granted a lock with its parent's client",
        (_, true) => "released its parent's guard",
        _ => "has a copy of a guard that said it was valid",
    };
    let (process, at) = (child.process, index.time(child.at));
    let message = format!("a child that process {process} forked {what} at {at}");
    let span = (child.at, child.at);
    index.violation(
        Property::Exclusion,
        &child.lock,
        span,
        vec![child.op],
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Acquire, Closed};

    fn events(client: u32, seen: u64) -> Vec<Event> {
        let granted = Acquire {
            client,
            ..acquire(op(1, 1), "a", 1, (10, 20))
        };
        let closed = Closed {
            process: 1,
            client: 4,
            at: 500,
        };
        vec![
            Event::Acquire(granted),
            Event::Closed(closed),
            look(op(1, 1), seen, true),
        ]
    }

    #[test]
    fn a_guard_of_a_closed_client_is_valid_no_more() {
        passes(events(4, 500));
        passes(events(5, 501));
        fails(events(4, 501), Property::LateLoss, &["p1#1", "closed"]);
    }

    #[test]
    fn a_copy_in_a_child_is_not_valid() {
        let child = |[valid, granted, released]: [bool; 3]| {
            vec![Event::Forked(Forked {
                process: 1,
                op: op(1, 1),
                lock: "a".to_owned(),
                at: 5,
                valid,
                granted,
                released,
            })]
        };
        passes(child([false; 3]));
        for (saw, words) in [
            ([true, false, false], "said it was valid"),
            ([false, true, false], "was granted a lock"),
            ([false, false, true], "released its parent's guard"),
        ] {
            fails(child(saw), Property::Exclusion, &["forked", words]);
        }
    }
}
