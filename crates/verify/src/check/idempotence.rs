//! One request is granted once, and one grant is for one request.

use std::collections::HashMap;

use super::{Index, Property, Violation};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut by_request: HashMap<(&str, &str), u64> = HashMap::new();
    let mut by_grant: HashMap<(&str, u64), &str> = HashMap::new();
    let mut found = Vec::new();
    for call in index.calls() {
        let Some(seq) = call.seq.filter(|_| call.answer.is_grant()) else {
            continue;
        };
        let (lock, request) = (call.lock.as_str(), call.request.as_str());
        let mut wrong = |message: String| {
            let span = (call.send, call.reply);
            found.push(index.violation(Property::Idempotence, lock, span, Vec::new(), message));
        };
        let first = *by_request.entry((lock, request)).or_insert(seq);
        if first != seq {
            let at = index.time(call.reply);
            wrong(format!(
                "request {request} of {lock} was granted as {first}, and as {seq} at {at}"
            ));
            continue;
        }
        let owner = *by_grant.entry((lock, seq)).or_insert(request);
        if owner != request {
            let at = index.time(call.reply);
            wrong(format!(
                "grant {seq} of {lock} was given to request {owner}, and to {request} at {at}"
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Answer, CallKind};

    #[test]
    fn a_repeated_request_with_one_grant_passes() {
        passes(vec![
            call(CallKind::Claim, "a", "r1", (1, 2), Answer::Granted, Some(5)),
            call(CallKind::Claim, "a", "r1", (3, 4), Answer::Granted, Some(5)),
            call(CallKind::Renew, "a", "r1", (5, 6), Answer::Held, Some(5)),
            call(CallKind::Claim, "a", "r2", (7, 8), Answer::Granted, Some(6)),
        ]);
    }

    #[test]
    fn a_request_with_two_grants_is_found() {
        let events = vec![
            call(CallKind::Claim, "a", "r1", (1, 2), Answer::Granted, Some(5)),
            call(CallKind::Claim, "a", "r1", (3, 4), Answer::Granted, Some(6)),
        ];
        fails(events, Property::Idempotence, &["r1", "as 5", "as 6"]);
    }

    #[test]
    fn a_grant_for_two_requests_is_found() {
        let events = vec![
            call(CallKind::Claim, "a", "r1", (1, 2), Answer::Granted, Some(5)),
            call(CallKind::Claim, "a", "r2", (3, 4), Answer::Granted, Some(5)),
        ];
        fails(events, Property::Idempotence, &["r1", "r2", "grant 5"]);
    }
}
