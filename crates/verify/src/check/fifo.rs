//! First come, first served: a claim that had its place in the queue before another one was sent is
//! granted before it. Tokens give the order of grants, so one walk backwards is enough.

use std::collections::{BTreeMap, HashMap};

use super::{Index, Property, Violation};
use crate::history::{Answer, Call, CallKind};

/// What is known of one request.
#[derive(Debug, Clone, Copy)]
struct Place<'h> {
    request: &'h str,
    /// When it was first sent.
    sent: u64,
    /// When it was first told that it has the place it had at the end.
    queued: Option<u64>,
    /// Until when its place surely lived: a lease after the last acknowledged send.
    alive: u64,
    seq: Option<u64>,
    /// By when it was granted.
    granted: u64,
}

impl Place<'_> {
    /// The claim was repeated. A place that may have run out meanwhile is a new one.
    fn repeat(&mut self, call: &Call) {
        let lapsed = call.reply > self.alive;
        self.alive = call.send + call.lease;
        match call.answer {
            Answer::Queued if lapsed || self.queued.is_none() => self.queued = Some(call.reply),
            Answer::Granted if lapsed => self.queued = None,
            _ => {}
        }
    }
}

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    if !index.history.start().is_some_and(|start| start.queue) {
        return Vec::new();
    }
    let mut places: HashMap<(&str, &str), Place<'_>> = HashMap::new();
    for call in index.calls() {
        let request = call.request.as_str();
        let sent = match call.call {
            CallKind::Claim => call.send,
            _ => u64::MAX,
        };
        let place = places.entry((&call.lock, request)).or_insert(Place {
            request,
            sent,
            queued: None,
            alive: u64::MAX,
            seq: None,
            granted: 0,
        });
        place.sent = place.sent.min(sent);
        if call.seq.is_some() && place.seq.is_none() {
            (place.seq, place.granted) = (call.seq, call.reply);
        }
        if matches!(call.answer, Answer::Queued | Answer::Granted) {
            place.repeat(call);
        }
    }
    let mut locks: BTreeMap<&str, Vec<(u64, Place<'_>)>> = BTreeMap::new();
    for ((lock, _), place) in places {
        if let Some(seq) = place.seq.filter(|_| place.sent < u64::MAX) {
            locks.entry(lock).or_default().push((seq, place));
        }
    }
    let locks = locks.into_iter();
    locks
        .flat_map(|(lock, granted)| walk(index, lock, granted))
        .collect()
}

fn walk(index: &Index<'_>, lock: &str, mut granted: Vec<(u64, Place<'_>)>) -> Vec<Violation> {
    granted.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
    let mut found = Vec::new();
    // Of those granted later: the one that had its place first.
    let mut earliest: Option<(u64, Place<'_>)> = None;
    for (seq, place) in granted {
        if let Some((queued, later)) = earliest.filter(|(queued, _)| *queued < place.sent) {
            let message = format!(
                "request {} was queued for {lock} by {}, before request {} was sent at {}, and was granted after it ({} after {seq})",
                later.request,
                index.time(queued),
                place.request,
                index.time(place.sent),
                later.seq.unwrap_or_default(),
            );
            let span = (queued, later.granted);
            found.push(index.violation(Property::Fifo, lock, span, Vec::new(), message));
        }
        if let Some(queued) = place.queued
            && earliest.is_none_or(|(first, _)| queued < first)
        {
            earliest = Some((queued, place));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Event;

    fn claim(request: &str, times: (u64, u64), answer: Answer, seq: Option<u64>) -> Event {
        call(CallKind::Claim, "a", request, times, answer, seq)
    }

    fn queue(first: u64, second: u64) -> Vec<Event> {
        vec![
            claim("r1", (1, 2), Answer::Queued, None),
            claim("r2", (3, 4), Answer::Queued, None),
            claim("r1", (10, 11), Answer::Granted, Some(first)),
            claim("r2", (12, 13), Answer::Granted, Some(second)),
        ]
    }

    #[test]
    fn the_order_of_the_queue_passes() {
        passes(queue(5, 6));
    }

    #[test]
    fn an_overtaking_claim_is_found() {
        fails(queue(6, 5), Property::Fifo, &["request r1", "request r2"]);
    }

    #[test]
    fn a_claim_that_never_was_granted_and_claims_at_once_pass() {
        let mut events = queue(6, 5);
        events.remove(2);
        passes(events);
        let mut events = queue(6, 5);
        events[1] = claim("r2", (1, 4), Answer::Queued, None);
        passes(events);
    }

    #[test]
    fn a_place_that_ran_out_does_not_count() {
        let mut events = queue(6, 5);
        // The lease is 1000: the first place of r1 was gone by the time of the second answer.
        events.insert(2, claim("r1", (900, 1002), Answer::Queued, None));
        events[3] = claim("r1", (1010, 1011), Answer::Granted, Some(6));
        events[4] = claim("r2", (12, 13), Answer::Granted, Some(5));
        passes(events.clone());
        events[2] = claim("r1", (900, 1001), Answer::Queued, None);
        fails(events, Property::Fifo, &["request r1"]);
    }

    #[test]
    fn a_grant_that_only_its_release_tells_of_counts() {
        let mut events = queue(6, 5);
        events[2] = call(
            CallKind::Release,
            "a",
            "r1",
            (20, 21),
            Answer::Released,
            Some(6),
        );
        fails(events, Property::Fifo, &["request r1"]);
    }
}
