//! A guard is valid for its lease, counted from before the last request that was acknowledged, less
//! the margin; and its holder is told in time.

use std::collections::{HashMap, HashSet};

use clinch::store::LOCAL_BITS;

use super::reach::covered;
use super::{Figures, Hold, Index, Property, Violation};
use crate::history::{Answer, Call, Event};

/// What extended each request: the calls that were acknowledged, by the time of the answer.
type Acknowledged<'h> = HashMap<&'h str, Vec<&'h Call>>;

pub(super) fn check(index: &Index<'_>, figures: &mut Figures) -> Vec<Violation> {
    let mut acknowledged: Acknowledged<'_> = HashMap::new();
    let mut requests: HashMap<(&str, u64), &str> = HashMap::new();
    for call in index.calls() {
        if matches!(call.answer, Answer::Granted | Answer::Queued | Answer::Held) {
            acknowledged.entry(&call.request).or_default().push(call);
        }
        if let Some(seq) = call.seq {
            requests.insert((&call.lock, seq), &call.request);
        }
    }
    let mut found = Vec::new();
    let drifting: HashMap<u32, i64> = index.history.hired().collect();
    // Who waits for a child does not listen.
    let events = index.history.events.iter();
    let forked: HashSet<u64> = events
        .filter_map(|event| match event {
            Event::Forked(child) => Some(child.op),
            _ => None,
        })
        .collect();
    for hold in &index.holds {
        let drift = drifting.get(&hold.acquire.process).copied().unwrap_or(0);
        let key = (hold.acquire.lock.as_str(), hold.token >> LOCAL_BITS);
        let calls = requests
            .get(&key)
            .and_then(|request| acknowledged.get(request));
        let Some(calls) = calls else {
            continue; // nothing is known of its requests: its process was killed
        };
        found.extend(too_long(index, hold, calls, drift));
        if !forked.contains(&hold.acquire.op) {
            found.extend(told_late(index, hold, (calls, drift), figures));
        }
    }
    figures.late_signals.sort_unstable();
    found
}

/// The longest time from the deadline to the signal, in nanoseconds; four times what the machine let us wait is
/// added.
const LONGEST_WAY: u64 = 1_000_000_000;

/// The lease less the margin that clinch promises (`docs/guarantees.md`).
fn valid_for(lease: u64) -> u64 {
    lease - lease / 100 - (lease / 10).min(10_000_000)
}

/// How long that is, if it was read on a clock that is too fast by so many millionths. The hundredth in the
/// margin is for this.
fn on_clock(span: u64, drift: i64) -> u64 {
    const MILLION: i128 = 1_000_000;
    let exact = i128::from(span) * MILLION / (MILLION + i128::from(drift));
    u64::try_from(exact).unwrap_or(span)
}

/// Until when the calls that were answered by `at` make a hold valid, with the call that does.
fn end<'h>(calls: &[&'h Call], at: u64, drift: i64) -> Option<(u64, &'h Call)> {
    let answered = calls.partition_point(|call| call.reply <= at);
    let calls = calls.iter().take(answered);
    calls
        .map(|call| (call.send + on_clock(valid_for(call.lease), drift), *call))
        .max_by_key(|(end, _)| *end)
}

fn too_long(index: &Index<'_>, hold: &Hold<'_>, calls: &[&Call], drift: i64) -> Option<Violation> {
    let (at, end, call) = hold.seen_valid().find_map(|at| {
        let (end, call) = end(calls, at, drift)?;
        (at > end).then_some((at, end, call))
    })?;
    let message = format!(
        "{} said at {} that it was valid; its last acknowledged request was sent at {}, good until {}",
        hold.name(),
        index.time(at),
        index.time(call.send),
        index.time(end),
    );
    let lock = &hold.acquire.lock;
    Some(index.violation(
        Property::LateLoss,
        lock,
        (end, at),
        vec![hold.acquire.op],
        message,
    ))
}

/// Since when a guard said that it is not valid, and, if its holder went on looking and was told nothing, until
/// when that was so. Only a holder that waits to be told looks again after that.
fn seen_ended(hold: &Hold<'_>) -> Option<(u64, Option<u64>)> {
    let mut ended = hold.looks.iter().filter(|look| !look.valid);
    let first = ended.next()?.at;
    let last = ended.next_back().map(|look| look.at);
    Some((first, last.filter(|_| hold.lost.is_none())))
}

/// A process that runs is told no later than the deadline, or than its guard says so, and the grace that the
/// machine needs.
fn told_late(
    index: &Index<'_>,
    hold: &Hold<'_>,
    (calls, drift): (&[&Call], i64),
    figures: &mut Figures,
) -> Option<Violation> {
    let ended = seen_ended(hold);
    let untold = ended.and_then(|(_, until)| until);
    let told = hold.lost.map(|lost| lost.at).or(untold)?;
    let (end, _) = end(calls, told, drift)?;
    let end = ended.map_or(end, |(first, _)| end.min(first));
    // It is the process's own clock that tells: only what stops the process delays it, and by that time.
    let own = index.faults_of(Some(hold.acquire.process), &hold.acquire.lock);
    let stops = own.filter(|fault| fault.process.is_some() && fault.kind.starts_with("worker"));
    let stopped = covered(stops.map(|f| (f.at, f.until)).collect(), (end, told));
    let late = told.saturating_sub(end).saturating_sub(stopped);
    let patience = index.grace().min(LONGEST_WAY) + 4 * index.lag((end, told));
    if late > 0 && hold.lost.is_some() {
        figures.late_signals.push(late);
    }
    if late <= patience {
        return None;
    }
    let how = match hold.lost {
        Some(_) => "was told at",
        None => "was not told by",
    };
    let message = format!(
        "{} ended at {}, and its holder {how} {}",
        hold.name(),
        index.time(end),
        index.time(told),
    );
    let lock = &hold.acquire.lock;
    Some(index.violation(
        Property::LateLoss,
        lock,
        (end, told),
        vec![hold.acquire.op],
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{CallKind, Lost};

    // A lease of 1000 is valid for 1000 - 10 - 100 = 890.
    fn events(looks: &[(u64, bool)]) -> Vec<Event> {
        let op = op(1, 1);
        let mut events = vec![
            call(
                CallKind::Claim,
                "a",
                "r",
                (100, 110),
                Answer::Granted,
                Some(1),
            ),
            call(CallKind::Renew, "a", "r", (400, 600), Answer::Held, Some(1)),
            Event::Acquire(acquire(op, "a", 1 << 12, (99, 111))),
        ];
        events.extend(looks.iter().map(|(at, valid)| look(op, *at, *valid)));
        events
    }

    #[test]
    fn valid_until_the_deadline_passes() {
        passes(events(&[(500, true), (1289, true), (1291, false)]));
    }

    #[test]
    fn valid_after_the_deadline_is_found() {
        fails(
            events(&[(1291, true)]),
            Property::LateLoss,
            &["p1#1", "0.000001 s"],
        );
    }

    #[test]
    fn a_renewal_that_is_not_answered_yet_does_not_count() {
        let mut events = events(&[(1289, true)]);
        if let Event::Call(renewal) = &mut events[1] {
            renewal.reply = 2000;
        }
        fails(events, Property::LateLoss, &["p1#1"]);
    }

    #[test]
    fn a_signal_much_after_the_deadline_is_found() {
        let lost = |at| {
            Event::Lost(Lost {
                op: op(1, 1),
                at,
                reason: "unrenewed".to_owned(),
            })
        };
        // What keeps the engine from answering does not keep a clock from being read.
        let fault = Event::Fault(crate::history::Fault {
            kind: "server paused".to_owned(),
            at: 700,
            until: 1400,
            ..crate::history::Fault::default()
        });
        passes([events(&[]), vec![fault.clone(), lost(1300)]].concat());
        let late = [events(&[]), vec![fault, lost(1391)]].concat();
        fails(late, Property::LateLoss, &["p1#1", "told"]);
    }

    fn told(at: u64) -> Event {
        Event::Lost(Lost {
            op: op(1, 1),
            at,
            reason: "closed".to_owned(),
        })
    }

    fn stopped(process: u32, at: u64, until: u64) -> Event {
        Event::Fault(crate::history::Fault {
            kind: "worker paused shortly".to_owned(),
            at,
            until,
            process: Some(process),
            ..crate::history::Fault::default()
        })
    }

    #[test]
    fn a_pause_of_its_process_excuses_as_long_as_it_lasted() {
        // It ends at 1290, and its holder is told within 100 of running on.
        let with = |more: Vec<Event>| [events(&[]), more].concat();
        passes(with(vec![stopped(1, 1200, 1500), told(1600)]));
        let late = with(vec![stopped(1, 1200, 1500), told(1601)]);
        fails(late, Property::LateLoss, &["p1#1", "told"]);
        let before = with(vec![stopped(1, 100, 1250), told(1391)]);
        fails(before, Property::LateLoss, &["p1#1", "told"]);
        let another = with(vec![stopped(2, 1200, 1500), told(1391)]);
        fails(another, Property::LateLoss, &["p1#1", "told"]);
    }

    #[test]
    fn a_holder_that_sees_the_end_and_is_never_told_is_found() {
        passes(events(&[(1289, true), (1295, false), (1390, false)]));
        let silent = [(1289, true), (1291, false), (1391, false)];
        fails(
            events(&silent),
            Property::LateLoss,
            &["p1#1", "was not told by"],
        );
        let paused = [events(&silent), vec![stopped(1, 1300, 1350)]].concat();
        passes(paused);
        // Who looks once does not wait to be told.
        passes(events(&[(1289, true), (2500, false)]));
    }

    #[test]
    fn what_the_store_said_is_told_at_once_and_not_at_the_deadline() {
        let ended = |at| [events(&[(700, false)]), vec![told(at)]].concat();
        passes(ended(800));
        fails(ended(801), Property::LateLoss, &["p1#1", "told"]);
    }

    #[test]
    fn a_lease_is_measured_on_the_clock_of_its_client() {
        assert_eq!(on_clock(1000, 0), 1000);
        // A clock that is too fast shows a second before it is over, a slow one after.
        assert_eq!(on_clock(1_005_000, 5_000), 1_000_000);
        assert_eq!(on_clock(995_000, -5_000), 1_000_000);
        assert_eq!(on_clock(u64::MAX, -5_000), u64::MAX);
        let hired = |drift| {
            Event::Hired(crate::history::Hired {
                process: 1,
                pid: 1,
                at: 1,
                drift,
            })
        };
        // 890 on these clocks are 885 and 894.
        let seen = |drift, at| [events(&[(at, true)]), vec![hired(drift)]].concat();
        passes(seen(5_000, 1285));
        fails(seen(5_000, 1286), Property::LateLoss, &["p1#1"]);
        passes(seen(-5_000, 1294));
        fails(seen(-5_000, 1295), Property::LateLoss, &["p1#1"]);
    }
}
