//! What the store lists belongs to somebody: each holder and each waiter to an open operation of a
//! process that lives. When that has ended it goes within a few round trips, not when its lease ends.
//!
//! The store is listed all the time. A holder belongs to a guard with its number, or to a multi-lock
//! that is being acquired; a waiter to an acquire of its process on its lock. Otherwise it may be seen
//! in [`POLLS`] polls, or for [`TRIPS`] round trips of its process at their present pace. What a dead process
//! left may stay as long as its leases; nothing of it may appear afterwards. Where the store sees a process
//! end, that is at once. Polls near a fault that
//! could delay the process or the lock do not count.

use std::collections::{BTreeMap, HashMap};

use clinch::store::LOCAL_BITS;

use super::{Index, Property, Violation, op_name};
use crate::history::{Acquire, Answer, Event, FORKED, Seen};

/// In so many polls in a row nobody's holder or waiter may be seen.
pub(super) const POLLS: usize = 6;
/// So many round trips of its process must fit into that time: it runs, and it reaches the store.
pub(super) const TRIPS: usize = 6;

type Span = (u64, u64);

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let facts = Facts::new(index);
    let seen = index.history.events.iter().filter_map(|event| match event {
        Event::Seen(seen) => Some(seen),
        _ => None,
    });
    let found = seen.filter_map(|seen| judge(index, &facts, seen));
    found.collect()
}

/// What the judge has to look up.
struct Facts<'h> {
    /// When polls were sent.
    polls: Vec<u64>,
    /// When each process had an answer, and how long that took.
    answers: HashMap<u32, Vec<(u64, u64)>>,
    /// When each process asked for each lock.
    asked: HashMap<(u32, &'h str), Asks>,
    /// Guards by lock and number.
    guards: HashMap<(&'h str, u64), Vec<(Span, u64)>>,
    killed: BTreeMap<u32, u64>,
}

/// What a process asked for on one lock.
#[derive(Default)]
struct Asks {
    /// In the order in which they began.
    asks: Vec<Ask>,
    /// How far the asks up to each of these reach.
    reach: Vec<u64>,
}

impl Asks {
    fn sort(&mut self) {
        self.asks.sort_unstable_by_key(|ask| ask.span);
        let ends = self.asks.iter().map(|ask| ask.span.1);
        self.reach = ends
            .scan(0, |reach, end| {
                *reach = end.max(*reach);
                Some(*reach)
            })
            .collect();
    }

    /// Those that overlap with a time, and perhaps others near it.
    fn near(&self, (from, until): Span) -> &[Ask] {
        let first = self.reach.partition_point(|reach| *reach < from);
        let last = self.asks.partition_point(|ask| ask.span.0 <= until);
        self.asks.get(first..last).unwrap_or_default()
    }
}

struct Ask {
    span: Span,
    /// It is a part of a multi-lock: its name may be held before all of them are.
    group: bool,
}

impl<'h> Facts<'h> {
    fn new(index: &Index<'h>) -> Self {
        let killed = index.history.killed();
        let mut facts = Self {
            polls: Vec::new(),
            answers: HashMap::new(),
            asked: HashMap::new(),
            guards: HashMap::new(),
            killed,
        };
        let mut ended = std::collections::HashSet::new();
        for acquire in index.acquires() {
            ended.extend([acquire.op, acquire.group.map_or(acquire.op, |(op, _)| op)]);
            facts.ask(acquire);
        }
        for event in &index.history.events {
            match event {
                Event::Poll(poll) => facts.polls.push(poll.send),
                Event::Call(call) if !matches!(call.answer, Answer::Unknown | Answer::Refused) => {
                    let took = call.reply - call.send;
                    let of = facts.answers.entry(call.process).or_default();
                    of.push((call.reply, took));
                }
                Event::Waiting(waiting) if !ended.contains(&waiting.op) => {
                    let asked = facts.asked.entry((waiting.process, &waiting.lock));
                    asked.or_default().asks.push(Ask {
                        span: (waiting.invoke, end_of(&facts.killed, waiting.process)),
                        group: true,
                    });
                }
                _ => {}
            }
        }
        facts.polls.sort_unstable();
        facts.asked.values_mut().for_each(Asks::sort);
        for hold in &index.holds {
            let key = (hold.acquire.lock.as_str(), hold.token >> LOCAL_BITS);
            let open = || end_of(&facts.killed, hold.acquire.process);
            let until = hold.ended().unwrap_or_else(open);
            let guards = facts.guards.entry(key).or_default();
            guards.push(((hold.acquire.complete, until), hold.acquire.op));
        }
        facts
    }

    fn ask(&mut self, acquire: &'h Acquire) {
        let asked = self.asked.entry((acquire.process, &acquire.lock));
        asked.or_default().asks.push(Ask {
            span: (acquire.invoke, acquire.complete),
            group: acquire.group.is_some(),
        });
    }

    /// How many round trips of a process fit into a time, at the pace of nine in ten of them.
    fn trips(&self, process: u32, (from, until): Span, lease: u64) -> usize {
        let answers = self.answers.get(&process).map_or(&[][..], Vec::as_slice);
        let first = answers.partition_point(|(reply, _)| *reply < from.saturating_sub(lease));
        let near = answers.iter().skip(first);
        let near = near.take_while(|(reply, _)| *reply <= until);
        let mut took: Vec<u64> = near.map(|(_, took)| *took).collect();
        took.sort_unstable();
        let Some(pace) = took.get(took.len() * 9 / 10) else {
            return 0;
        };
        usize::try_from((until - from) / (*pace).max(1)).unwrap_or(usize::MAX)
    }
}

fn judge(index: &Index<'_>, facts: &Facts<'_>, seen: &Seen) -> Option<Violation> {
    let owned = owned(index, facts, seen);
    let lease = index.lease();
    let (dead, alive): (Option<u32>, Option<u32>) = match seen.process {
        Some(process) if facts.killed.contains_key(&process) => (Some(process), None),
        process => (None, process),
    };
    // Nothing delays a process that has ended, where that is seen.
    let (whose, settle) = match index.history.start().and_then(|start| start.at_once) {
        Some(at_once) if dead.is_some() => (None, at_once),
        _ => (seen.process, settle(index)),
    };
    for gap in gaps(owned, (seen.from, seen.until)) {
        // A party was there at every poll between its first and its last one.
        let first = facts.polls.partition_point(|send| *send <= gap.0);
        let last = facts.polls.partition_point(|send| *send <= gap.1);
        if last.saturating_sub(first) <= POLLS {
            continue;
        }
        let polls = facts.polls.iter().skip(first);
        let mut row: Vec<u64> = Vec::new();
        for at in polls.take_while(|send| **send <= gap.1) {
            let quiet = index.is_quiet((whose, &seen.lock), (*at, *at), settle);
            match quiet {
                true => row.push(*at),
                false => row.clear(),
            }
            let span = (row.first().copied().unwrap_or(*at), *at);
            let answered = alive.is_none_or(|process| facts.trips(process, span, lease) > TRIPS);
            if row.len() > POLLS && answered {
                return Some(tell(index, facts, seen, span));
            }
        }
    }
    None
}

/// Until when a process has what it did not give up: what it leaves when it is killed is nobody's.
fn end_of(killed: &BTreeMap<u32, u64>, process: u32) -> u64 {
    killed.get(&process).copied().unwrap_or(u64::MAX)
}

/// For how long a fault delays things after its end: a request that was lost is given up, and repeated.
fn settle(index: &Index<'_>) -> u64 {
    index.history.start().map_or(0, |start| start.lease * 2)
}

/// When it belonged to somebody.
fn owned(index: &Index<'_>, facts: &Facts<'_>, seen: &Seen) -> Vec<Span> {
    let mut spans = Vec::new();
    let lease = index.lease_of(&seen.lock);
    if let Some(seq) = seen.seq {
        let guards = facts.guards.get(&(seen.lock.as_str(), seq));
        spans.extend(guards.into_iter().flatten().map(|(span, _)| *span));
    }
    let Some(process) = seen.process else {
        return spans;
    };
    let asked = facts.asked.get(&(process, seen.lock.as_str()));
    let time = (seen.from, seen.until);
    for ask in asked.into_iter().flat_map(|asks| asks.near(time)) {
        match seen.seq.is_none() || ask.group {
            true => spans.push(ask.span),
            // A grant whose notice was lost is found by the next look, after a sixth of a lease.
            false if ask.span.0 <= seen.from && seen.from <= ask.span.1 => {
                spans.push((
                    seen.from,
                    ask.span.1.min(seen.from.saturating_add(lease / 4)),
                ));
            }
            false => {}
        }
    }
    if let Some(&killed) = facts.killed.get(&process) {
        if let Some(until) = noticed(index, process, killed, seen) {
            spans.push((0, until));
            return spans;
        }
        // A waiter that died may be granted the lock as long as its place lives, and keep it for a lease.
        let engine = index.faults_of(None, &seen.lock);
        let engine =
            engine.filter(|f| f.until.saturating_add(lease) >= killed && f.at <= seen.until);
        let extended: u64 = engine.map(|f| f.until - f.at + lease).sum();
        let places = killed.saturating_add(lease + settle(index) + extended);
        // Until it died its operations are not all known.
        spans.push((0, killed));
        if seen.from <= places {
            spans.push((killed, places.saturating_add(lease + index.grace())));
        }
    }
    spans
}

/// Until when a store that sees a process end has seen this one; `None` where leases have to run out. So it is
/// if session files are missing, or disturbed in another way, or if a child that was forked keeps its parent's.
fn noticed(index: &Index<'_>, process: u32, killed: u64, seen: &Seen) -> Option<u64> {
    let at_once = index.history.start()?.at_once?;
    let long = index.lease() + index.grace();
    let mut forks = index.faults.iter().filter(|fault| fault.kind == FORKED);
    let forked = forks.any(|f| f.process == Some(process) && f.at.saturating_add(long) >= killed);
    let lease = index.lease_of(&seen.lock);
    let mut engine = index.faults_of(None, &seen.lock);
    let disturbed =
        engine.any(|f| f.until.saturating_add(lease) >= killed && f.at <= killed + at_once);
    let lag = 4 * index.lag((killed, killed + at_once));
    (!forked && !disturbed).then_some(killed + at_once + lag)
}

/// What spans leave uncovered of a time.
fn gaps(mut spans: Vec<Span>, (from, until): Span) -> Vec<Span> {
    spans.sort_unstable();
    let (mut gaps, mut reached) = (Vec::new(), from);
    for (begin, end) in spans {
        if begin > reached {
            gaps.push((reached, begin.min(until)));
        }
        reached = reached.max(end);
    }
    gaps.push((reached, until));
    gaps.retain(|(from, until)| from < until);
    gaps
}

fn tell(index: &Index<'_>, facts: &Facts<'_>, seen: &Seen, span: Span) -> Violation {
    let what = match seen.seq {
        Some(seq) => format!("a holder (token {})", seq << LOCAL_BITS),
        None => "a waiter".to_owned(),
    };
    let whose = match seen.process {
        Some(process) => match facts.killed.get(&process) {
            Some(at) => format!("process {process}, killed at {}", index.time(*at)),
            None => format!("process {process}, which has no operation that it belongs to"),
        },
        None => "no process of this run".to_owned(),
    };
    let guards = seen
        .seq
        .and_then(|seq| facts.guards.get(&(seen.lock.as_str(), seq)));
    let ops: Vec<_> = guards.into_iter().flatten().map(|(_, op)| *op).collect();
    let last = ops.last().map_or_else(String::new, |op| {
        format!("; its guard was that of {}", op_name(*op))
    });
    let message = format!(
        "{} has {what} of {whose} ({}): listed from {} to {}, and nobody's in more than {POLLS} polls from {}{last}",
        seen.lock,
        seen.owner,
        index.time(seen.from),
        index.time(seen.until),
        index.time(span.0),
    );
    index.violation(Property::Orphans, &seen.lock, span, ops, message)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{CallKind, Exit, Fault, Kind, Outcome, Poll};

    /// A poll every ten, and an answer of process 1 every five.
    fn polls() -> Vec<Event> {
        let polls = (0..1000).map(|n| {
            Event::Poll(Poll {
                send: n * 10,
                reply: n * 10 + 1,
            })
        });
        let calls = (0..2000).map(|n| {
            let (kind, at) = (CallKind::Renew, n * 5);
            call(kind, "z", "other", (at, at + 1), Answer::Held, Some(99))
        });
        polls.chain(calls).collect()
    }

    fn seen(seq: Option<u64>, from: u64, until: u64) -> Event {
        Event::Seen(Seen {
            lock: "a".to_owned(),
            seq,
            owner: "o".to_owned(),
            process: Some(1),
            from,
            until,
        })
    }

    fn guard(complete: u64) -> Event {
        Event::Acquire(acquire(
            op(1, 1),
            "a",
            7 << LOCAL_BITS,
            (complete - 5, complete),
        ))
    }

    fn with(events: Vec<Event>) -> Vec<Event> {
        [polls(), events].concat()
    }

    #[test]
    fn a_holder_with_a_guard_passes_and_may_stay_for_some_polls() {
        let ended = release(op(1, 1), (4000, 4001));
        passes(with(vec![
            guard(100),
            ended.clone(),
            seen(Some(7), 101, 4060),
        ]));
        let late = with(vec![guard(100), ended, seen(Some(7), 101, 4080)]);
        fails(late, Property::Orphans, &["a holder", "process 1", "p1#1"]);
    }

    #[test]
    fn a_holder_that_nobody_was_told_of_is_found() {
        fails(
            with(vec![seen(Some(7), 101, 190)]),
            Property::Orphans,
            &["a has a holder"],
        );
    }

    #[test]
    fn a_holder_of_a_try_that_was_refused_is_found() {
        let refused = Acquire {
            kind: Kind::Try,
            outcome: Outcome::Fail,
            token: None,
            deadline: None,
            ..acquire(op(1, 1), "a", 1, (100, 120))
        };
        let events = with(vec![Event::Acquire(refused), seen(Some(7), 300, 400)]);
        fails(
            events,
            Property::Orphans,
            &["no operation that it belongs to"],
        );
    }

    #[test]
    fn another_acquire_of_the_process_is_no_excuse_for_a_holder() {
        let waits = Event::Acquire(acquire(op(1, 1), "a", 8 << LOCAL_BITS, (100, 900)));
        passes(with(vec![waits.clone(), seen(Some(7), 300, 600)]));
        fails(
            with(vec![waits, seen(Some(7), 300, 640)]),
            Property::Orphans,
            &["a holder"],
        );
    }

    #[test]
    fn a_waiter_belongs_to_an_acquire_of_its_process() {
        let waits = Event::Acquire(acquire(op(1, 1), "a", 7 << LOCAL_BITS, (100, 900)));
        passes(with(vec![waits.clone(), seen(None, 110, 960)]));
        fails(
            with(vec![waits, seen(None, 110, 1000)]),
            Property::Orphans,
            &["a waiter"],
        );
    }

    #[test]
    fn a_part_of_a_multi_lock_may_be_held_before_the_others() {
        let part = Acquire {
            group: Some((op(1, 9), 3)),
            outcome: Outcome::Fail,
            ..acquire(op(1, 1), "a", 1, (100, 900))
        };
        passes(with(vec![Event::Acquire(part), seen(Some(7), 110, 940)]));
    }

    #[test]
    fn the_dead_keep_what_they_had_for_their_leases_and_get_nothing_more() {
        let killed = Event::Exit(Exit {
            process: 1,
            at: 500,
            killed: true,
        });
        let held = acquire(op(1, 1), "a", 7 << LOCAL_BITS, (90, 100));
        let held = Event::Acquire(held);
        // Lease 1000, settling 2000, another lease, grace 100.
        passes(with(vec![
            held.clone(),
            killed.clone(),
            seen(Some(7), 101, 4600),
        ]));
        // And not for ever, though nobody said that it ended.
        fails(
            with(vec![held.clone(), killed.clone(), seen(Some(7), 101, 4680)]),
            Property::Orphans,
            &["killed at", "p1#1"],
        );
        fails(
            with(vec![held, killed.clone(), seen(Some(8), 3510, 3600)]),
            Property::Orphans,
            &["killed at"],
        );
    }

    #[test]
    fn polls_near_a_fault_of_the_process_do_not_count_and_those_of_others_do() {
        let fault = |process| {
            Event::Fault(Fault {
                kind: "cut off".to_owned(),
                at: 50,
                until: 120,
                process: Some(process),
                ..Fault::default()
            })
        };
        passes(with(vec![fault(1), seen(Some(7), 101, 2150)]));
        fails(
            with(vec![fault(1), seen(Some(7), 101, 2300)]),
            Property::Orphans,
            &["process 1"],
        );
        fails(
            with(vec![fault(2), seen(Some(7), 101, 300)]),
            Property::Orphans,
            &["process 1"],
        );
    }

    #[test]
    fn a_process_that_gets_no_answers_is_not_blamed() {
        let mut events = with(vec![seen(Some(7), 101, 400)]);
        events.retain(|event| !matches!(event, Event::Call(_)));
        passes(events);
    }

    /// A run on a store that sees processes end, within 50.
    fn found_at_once(events: Vec<Event>) -> Vec<Violation> {
        let start = Event::Start(crate::history::Start {
            version: crate::history::VERSION,
            grace: 100,
            lease: 1000,
            at_once: Some(50),
            ..crate::history::Start::default()
        });
        let history = crate::history::History::new([vec![start], with(events)].concat());
        super::super::check(&history).violations
    }

    #[test]
    fn where_a_death_is_seen_the_dead_keep_nothing() {
        let exit = Event::Exit(Exit {
            process: 1,
            at: 500,
            killed: true,
        });
        let fault = |kind: &str, process, at| {
            Event::Fault(Fault {
                kind: kind.to_owned(),
                at,
                until: at,
                process,
                ..Fault::default()
            })
        };
        let held = Event::Acquire(acquire(op(1, 1), "a", 7 << LOCAL_BITS, (90, 100)));
        let killed = vec![held, exit, fault("worker killed", Some(1), 500)];
        let with = |more: Vec<Event>| found_at_once([killed.clone(), more].concat());
        assert!(with(vec![seen(Some(7), 101, 610)]).is_empty());
        assert_eq!(with(vec![seen(Some(7), 101, 630)]).len(), 1);
        let lag = Event::Lag(crate::history::Lag { at: 520, by: 30 });
        assert!(with(vec![seen(Some(7), 101, 630), lag]).is_empty());
        // A child that was forked keeps its parent's session; and a session file that is missing says nothing.
        let forked = fault(crate::history::FORKED, Some(1), 450);
        assert!(with(vec![seen(Some(7), 101, 630), forked]).is_empty());
        let removed = fault("session files removed", None, 450);
        assert!(with(vec![seen(Some(7), 101, 630), removed]).is_empty());
    }
}
