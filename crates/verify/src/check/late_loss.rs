//! A guard is valid for its lease, counted from before the last request that was acknowledged, less
//! the margin; and its holder is told in time.

use std::collections::HashMap;

use clinch::LOCAL_BITS;

use super::{Figures, Hold, Index, Property, Violation};
use crate::history::{Answer, Call};

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
        found.extend(told_late(index, hold, (calls, drift), figures));
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

/// A process that runs is told no later than the deadline, and the grace that the machine needs.
fn told_late(
    index: &Index<'_>,
    hold: &Hold<'_>,
    (calls, drift): (&[&Call], i64),
    figures: &mut Figures,
) -> Option<Violation> {
    let lost = hold.lost?;
    let (end, _) = end(calls, lost.at, drift)?;
    let late = lost.at.saturating_sub(end);
    // It is the process's own clock that tells: only what stops the process delays it.
    let patience = index.grace().min(LONGEST_WAY) + 4 * index.lag((end, lost.at));
    let mut own = index.faults_of(Some(hold.acquire.process), &hold.acquire.lock);
    let held_up = own.any(|fault| {
        fault.process.is_some()
            && fault.kind.starts_with("worker")
            && fault.at <= lost.at
            && end <= fault.until.saturating_add(patience)
    });
    if held_up {
        return None;
    }
    if late > 0 {
        figures.late_signals.push(late);
    }
    if late <= patience {
        return None;
    }
    let (told, end_text) = (index.time(lost.at), index.time(end));
    let message = format!(
        "{} ended at {end_text}, and its holder was told at {told}",
        hold.name()
    );
    let lock = &hold.acquire.lock;
    Some(index.violation(
        Property::LateLoss,
        lock,
        (end, lost.at),
        vec![hold.acquire.op],
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{CallKind, Event, Lost};

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
}
