//! Token order in real time: a grant that was asked for after another one was complete has the
//! greater token.

use super::{Hold, Index, Property, Violation};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    if !index.has_tokens() {
        return Vec::new();
    }
    let locks = index.by_lock().into_iter();
    locks
        .flat_map(|(lock, holds)| walk(index, lock, &holds))
        .collect()
}

/// Walks over the grants by the time of asking, with the greatest token completed before that.
fn walk(index: &Index<'_>, lock: &str, completed: &[&Hold<'_>]) -> Vec<Violation> {
    let mut asked = completed.to_vec();
    asked.sort_by_key(|hold| hold.acquire.invoke);
    let mut completed = completed.iter().peekable();
    let mut greatest: Option<&Hold<'_>> = None;
    let mut found = Vec::new();
    for later in asked {
        while let Some(hold) = completed.next_if(|h| h.acquire.complete < later.acquire.invoke) {
            if greatest.is_none_or(|other| other.token < hold.token) {
                greatest = Some(hold);
            }
        }
        let Some(earlier) = greatest.filter(|hold| hold.token >= later.token) else {
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
    use crate::history::Event;

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
    fn other_locks_have_their_own_order() {
        let other = Event::Acquire(acquire(op(2, 1), "b", 1, (3, 4)));
        passes(vec![grant(1, 9, (1, 2)), other]);
    }
}
