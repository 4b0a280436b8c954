//! Observers of an election never see terms go back.

use std::collections::HashMap;

use super::{Index, Property, Violation, op_name};
use crate::history::{Event, Observe};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut last: HashMap<u64, &Observe> = HashMap::new();
    let mut found = Vec::new();
    for event in &index.history.events {
        let Event::Observe(now) = event else { continue };
        if let Some(before) = last.insert(now.op, now)
            && before.token > now.token
        {
            let message = format!(
                "observer {} of {} saw term {} at {} and then term {} at {}",
                op_name(now.op),
                now.lock,
                before.token,
                index.time(before.at),
                now.token,
                index.time(now.at),
            );
            let span = (before.at, now.at);
            found.push(index.violation(Property::Terms, &now.lock, span, vec![now.op], message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn see(at: u64, token: u64) -> Event {
        Event::Observe(Observe {
            process: 1,
            op: op(1, 3),
            lock: "e".to_owned(),
            at,
            token,
        })
    }

    #[test]
    fn rising_terms_pass_and_a_falling_one_is_found() {
        passes(vec![see(1, 4), see(2, 4), see(3, 5)]);
        fails(
            vec![see(1, 5), see(2, 4)],
            Property::Terms,
            &["p1#3", "term 5", "term 4"],
        );
    }
}
