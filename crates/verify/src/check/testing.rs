//! Histories made by hand.

use super::{Findings, Property, check};
use crate::history::{
    Acquire, Answer, Call, CallKind, Event, History, Kind, Look, Outcome, Release, Start, VERSION,
};

/// A run that begins at 0, with a queue and a grace of 100.
pub(super) fn start() -> Event {
    Event::Start(Start {
        version: VERSION,
        queue: true,
        tokens: true,
        grace: 100,
        lease: 1000,
        ..Start::default()
    })
}

/// The n-th operation of a process.
pub(super) fn op(process: u64, n: u64) -> u64 {
    process << 32 | n
}

/// A mutex that is granted and valid.
pub(super) fn acquire(op: u64, lock: &str, token: u64, (invoke, complete): (u64, u64)) -> Acquire {
    Acquire {
        op,
        process: u32::try_from(op >> 32).unwrap(),
        client: 0,
        lock: lock.to_owned(),
        owner: format!("owner-{op}"),
        kind: Kind::Wait,
        units: 1,
        limit: 1,
        group: None,
        lease: 1000,
        delay: 0,
        invoke,
        complete,
        outcome: Outcome::Ok,
        token: Some(token),
        deadline: Some(invoke + 1000),
        error: None,
    }
}

pub(super) fn release(op: u64, (invoke, complete): (u64, u64)) -> Event {
    Event::Release(Release {
        op,
        invoke,
        complete,
        outcome: Outcome::Ok,
        valid: true,
        reason: None,
        error: None,
    })
}

pub(super) fn look(op: u64, at: u64, valid: bool) -> Event {
    Event::Look(Look { op, at, valid })
}

pub(super) fn call(
    kind: CallKind,
    lock: &str,
    request: &str,
    (send, reply): (u64, u64),
    answer: Answer,
    seq: Option<u64>,
) -> Event {
    Event::Call(Call {
        process: 1,
        call: kind,
        lock: lock.to_owned(),
        request: request.to_owned(),
        send,
        reply,
        answer,
        reason: None,
        seq,
        lease: 1000,
    })
}

pub(super) fn findings(events: Vec<Event>) -> Findings {
    let mut all = vec![start()];
    all.extend(events);
    check(&History::new(all))
}

/// Nothing is wrong.
#[track_caller]
pub(super) fn passes(events: Vec<Event>) {
    let found = findings(events).violations;
    assert!(found.is_empty(), "{found:#?}");
}

/// Exactly this is wrong, and the message has these words.
#[track_caller]
pub(super) fn fails(events: Vec<Event>, property: Property, words: &[&str]) {
    let found = findings(events).violations;
    let kinds: Vec<_> = found.iter().map(|violation| violation.property).collect();
    assert_eq!(kinds, [property], "{found:#?}");
    for word in words {
        assert!(found[0].message.contains(word), "{word}: {found:#?}");
    }
}
