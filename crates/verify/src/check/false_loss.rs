//! No loss is reported that was none.
//!
//! - A lease that was acknowledged is not lost while it runs: neither the client nor the store
//!   says so. What the store is said to have said, it has said of this hold.
//! - A hold that ends because it could not be renewed was kept from it by a fault that reaches its process
//!   or its lock, and under which renewals are late. So a hold at a healthy shard survives the loss of
//!   another one, and the holds of one process survive the pause of another.
//! - A release that took effect says so: one that was tried before without an answer, and finds nothing,
//!   had taken effect.

use std::collections::HashMap;

use clinch::store::LOCAL_BITS;

use super::{Hold, Index, Property, Violation};
use crate::history::{Answer, Call, CallKind, Fault, Outcome, Renewals};

/// For how long a fault may keep renewals from being answered after its end: connections are given up
/// and made again.
fn settle(index: &Index<'_>) -> u64 {
    let start = index.history.start();
    let known = start.and_then(|start| start.at_once.or(start.settle));
    known.unwrap_or(index.grace())
}

/// What is wrong with a loss, and since when that which excuses it may have happened.
type Why = (String, u64);

/// When each call was sent, by which process, and how long its answer took: for ever if there was none.
type Traffic = Vec<(u64, u32, u64)>;

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut calls: HashMap<&str, Vec<&Call>> = HashMap::new();
    let mut requests: HashMap<(&str, u64), &str> = HashMap::new();
    let mut traffic = Traffic::new();
    for call in index.calls() {
        let took = match call.answer {
            Answer::Unknown | Answer::Refused => u64::MAX,
            _ => call.reply - call.send,
        };
        traffic.push((call.send, call.process, took));
        calls.entry(&call.request).or_default().push(call);
        if let Some(seq) = call.seq {
            requests.insert((&call.lock, seq), &call.request);
        }
    }
    traffic.sort_unstable();
    let mut found = Vec::new();
    for hold in &index.holds {
        let key = (hold.acquire.lock.as_str(), hold.token >> LOCAL_BITS);
        let calls = requests.get(&key).and_then(|request| calls.get(request));
        let Some(calls) = calls else {
            continue; // nothing is known of its requests
        };
        let why = match (hold.lost, hold.release) {
            (Some(_), _) => lost(index, hold, calls, &traffic),
            (None, Some(_)) => released(index, hold, calls),
            _ => None,
        };
        found.extend(why.map(|why| tell(index, hold, why)));
    }
    found
}

/// Until when a lease runs surely, by what was acknowledged before a moment: the store counts it from a
/// time after the send. A hundredth less, for clocks that run at different rates.
fn lease_end(calls: &[&Call], at: u64) -> u64 {
    let acknowledged = calls
        .iter()
        .filter(|call| matches!(call.answer, Answer::Granted | Answer::Held) && call.reply <= at);
    let ends = acknowledged.map(|call| call.send + call.lease - call.lease / 100);
    ends.max().unwrap_or(0)
}

/// Until when a guard was surely valid before it was lost. An acknowledgement counts if it came in time:
/// it revives nothing that had ended before the engine could have it.
fn valid_until(calls: &[&Call], lost: u64, way: u64, margin: u64) -> u64 {
    let held = |call: &&&Call| matches!(call.answer, Answer::Granted | Answer::Held);
    let mut acknowledged: Vec<&&Call> = calls.iter().filter(held).collect();
    acknowledged.sort_by_key(|call| call.reply);
    let mut end = 0;
    for call in acknowledged {
        let known = call.reply + way;
        if known > lost || (end > 0 && known > end) {
            break;
        }
        let valid = (call.send + call.lease - call.lease / 100).saturating_sub(margin);
        end = end.max(valid);
    }
    end
}

/// Whether other processes, which no fault reached, got most of their answers late within a time: the servers, or
/// the machine, were busy.
fn others_waited(
    index: &Index<'_>,
    hold: &Hold<'_>,
    traffic: &Traffic,
    window: (u64, u64),
) -> bool {
    let first = traffic.partition_point(|(send, ..)| *send < window.0);
    let within = traffic.iter().skip(first);
    let within = within.take_while(|(send, ..)| *send <= window.1);
    let lock = hold.acquire.lock.as_str();
    let mut quiet: HashMap<u32, bool> = HashMap::from([(hold.acquire.process, false)]);
    let (mut slow, mut all) = (0, 0);
    for (_, process, took) in within {
        let is_quiet = || index.is_quiet((Some(*process), lock), window, settle(index));
        if *quiet.entry(*process).or_insert_with(is_quiet) {
            all += 1;
            slow += u64::from(*took > hold.acquire.lease / 8);
        }
    }
    slow * 2 > all
}

/// Whether a fault may have kept a hold from being renewed within its last lease.
fn is_kept_from_renewals(index: &Index<'_>, hold: &Hold<'_>, (from, until): (u64, u64)) -> bool {
    let whose = (Some(hold.acquire.process), hold.acquire.lock.as_str());
    let settle = settle(index);
    let mut near = index
        .faults_of(whose.0, whose.1)
        .filter(|fault| fault.at <= until && fault.until.saturating_add(settle) >= from);
    near.any(|fault| match fault.renewals {
        Renewals::Delayed => true,
        Renewals::GoOn => false,
        Renewals::OfWholeHolds => !is_whole(index, hold, fault, until),
    })
}

/// Whether every server has a hold, so that it outlives this fault of a minority of them: nothing else has
/// happened since long before it was asked for. A server that comes back takes no part for a while, and
/// one that missed the grant, or a lease of renewals, does not get the hold later.
fn is_whole(index: &Index<'_>, hold: &Hold<'_>, away: &Fault, until: u64) -> bool {
    let since = hold.acquire.invoke;
    let settle = index.grace() + hold.acquire.lease;
    let mut faults = index.faults_of(Some(hold.acquire.process), &hold.acquire.lock);
    let alone = faults.all(|fault| {
        std::ptr::eq(fault, away) || fault.at > until || fault.until.saturating_add(settle) < since
    });
    alone && away.at > hold.acquire.complete && index.lag((since, until)) <= hold.acquire.lease / 8
}

/// Whether the last acknowledgement came when most of its lease was over: no renewal was in time then.
fn left_no_time(hold: &Hold<'_>, calls: &[&Call]) -> bool {
    let held = |call: &&&Call| matches!(call.answer, Answer::Granted | Answer::Held);
    let last = calls.iter().filter(held).max_by_key(|call| call.send);
    last.is_some_and(|call| call.reply - call.send > hold.acquire.lease / 3 * 2)
}

/// Whether the store said before a moment that it is lost. What it says of a release afterwards announces
/// nothing: the engine had ended it by then.
fn announced<'h>(calls: &[&'h Call], by: u64) -> Option<&'h Call> {
    let said = |call: &&&Call| matches!(call.answer, Answer::Lost | Answer::WasLost);
    let mut calls = calls.iter().filter(said);
    calls.find(|call| call.reply <= by).copied()
}

/// A loss by the word of the store that it never gave. An eviction by this same client needs none, but is
/// recorded as a fault of the lock, which excuses it. A hold in doubt is lost by the reply to its next renewal.
fn unannounced(index: &Index<'_>, calls: &[&Call], at: u64) -> Option<String> {
    let end = lease_end(calls, at);
    (at < end).then(|| {
        let end = index.time(end);
        format!("no reply of the store said so, and it had acknowledged it until {end}")
    })
}

fn lost(index: &Index<'_>, hold: &Hold<'_>, calls: &[&Call], traffic: &Traffic) -> Option<Why> {
    let lost = hold.lost?;
    let since = lost.at.saturating_sub(hold.acquire.lease);
    let why = match lost.reason.as_str() {
        "closed" | "max-hold" => None,
        "unrenewed" => {
            let window = (lost.at.saturating_sub(hold.acquire.lease), lost.at);
            let margin = hold.acquire.lease / 100 + (hold.acquire.lease / 10).min(10_000_000);
            // An acknowledgement has to get from the store to the engine as well.
            let way = hold.acquire.lease / 15 + 4 * index.lag(window);
            let end = valid_until(calls, lost.at, way, margin);
            if lost.at < end {
                let end = index.time(end);
                return Some((format!("it was acknowledged until {end}"), since));
            }
            // It was last renewed a third of the lease after the acknowledgement that counts.
            let waited = (lost.at.saturating_sub(hold.acquire.lease / 3 * 2), lost.at);
            // A file has no servers, and a process that keeps others from it is no reason.
            let slow = !index.at_once() && others_waited(index, hold, traffic, waited);
            let busy = slow || index.lag(window) > hold.acquire.lease / 8;
            let busy = busy || left_no_time(hold, calls);
            let quiet = !is_kept_from_renewals(index, hold, window) && !busy;
            quiet.then(|| "no fault kept its process from renewing it".to_owned())
        }
        _ => match announced(calls, lost.at) {
            None => unannounced(index, calls, lost.at),
            Some(answer) => {
                let end = lease_end(calls, answer.reply);
                (answer.reply < end).then(|| {
                    let (at, end) = (index.time(answer.reply), index.time(end));
                    format!("the store said so at {at}, and it had acknowledged it until {end}")
                })
            }
        },
    };
    why.map(|why| (why, since))
}

fn released(index: &Index<'_>, hold: &Hold<'_>, calls: &[&Call]) -> Option<Why> {
    let release = hold.release?;
    if release.outcome != Outcome::Fail {
        return None;
    }
    let since = release.complete.saturating_sub(hold.acquire.lease);
    let reason = release.reason.as_deref().unwrap_or_default();
    if matches!(reason, "closed" | "unrenewed" | "max-hold") {
        return None;
    }
    if announced(calls, release.complete).is_none() {
        let why = unannounced(index, calls, release.complete);
        return why.map(|why| (why, since));
    }
    if !release.valid {
        return None; // when it had been lost is not known
    }
    let releases = calls.iter().filter(|call| call.call == CallKind::Release);
    let mut tries = releases.filter(|call| call.reply <= release.complete);
    let end = lease_end(calls, release.complete);
    let unanswered = tries
        .clone()
        .find(|c| c.answer == Answer::Unknown && c.send < end);
    if let Some(unanswered) = unanswered.filter(|_| matches!(reason, "forgotten" | "released")) {
        let why = "an earlier try, which was not answered, had released it";
        return Some((why.to_owned(), since.min(unanswered.send)));
    }
    let answer = tries.find(|call| call.answer == Answer::WasLost)?;
    (answer.reply < end).then(|| ("its lease was still running".to_owned(), since))
}

/// Only what happened since its last lease began can have ended it.
fn tell(index: &Index<'_>, hold: &Hold<'_>, (why, since): Why) -> Violation {
    let (at, reason) = match (hold.lost, hold.release) {
        (Some(lost), _) => (lost.at, lost.reason.as_str()),
        (None, Some(release)) => {
            let reason = release.reason.as_deref();
            (release.complete, reason.unwrap_or_default())
        }
        _ => (hold.acquire.complete, ""),
    };
    let lock = &hold.acquire.lock;
    let message = format!(
        "{} of {lock} was said to be lost ({reason}) at {}: {why}",
        hold.name(),
        index.time(at),
    );
    let span = (since, at);
    index.violation(
        Property::FalseLoss,
        lock,
        span,
        vec![hold.acquire.op],
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::super::reach;
    use super::super::testing::*;
    use super::*;
    use crate::history::{Event, Fault, Lag, Lost, Release, Renewals};

    fn held(renewed: &[(u64, Answer)]) -> Vec<Event> {
        let grant = (99, 110);
        let (kind, granted) = (CallKind::Claim, Answer::Granted);
        let mut events = vec![
            call(kind, "a", "r", (100, 109), granted, Some(1)),
            Event::Acquire(acquire(op(1, 1), "a", 1 << LOCAL_BITS, grant)),
        ];
        let renewals = renewed.iter().map(|(send, answer)| {
            let at = (*send, send + 10);
            call(CallKind::Renew, "a", "r", at, *answer, Some(1))
        });
        events.extend(renewals);
        events
    }

    fn lost(at: u64, reason: &str) -> Event {
        Event::Lost(Lost {
            op: op(1, 1),
            at,
            reason: reason.to_owned(),
        })
    }

    fn trouble(at: u64, until: u64) -> Fault {
        Fault {
            kind: "trouble".to_owned(),
            at,
            until,
            ..Fault::default()
        }
    }

    #[test]
    fn a_loss_while_the_lease_was_acknowledged_is_found() {
        let trouble = Event::Fault(trouble(400, 2000));
        let mut good = held(&[(400, Answer::Held)]);
        good.extend([trouble.clone(), lost(1300, "unrenewed")]);
        passes(good);
        let mut early = held(&[(400, Answer::Held)]);
        early.extend([trouble, lost(1200, "unrenewed")]);
        fails(early, Property::FalseLoss, &["p1#1", "acknowledged until"]);
    }

    #[test]
    fn an_acknowledgement_at_the_last_moment_may_come_too_late() {
        let mut events = held(&[(960, Answer::Held)]);
        events.extend([Event::Fault(trouble(400, 2000)), lost(990, "unrenewed")]);
        passes(events);
    }

    #[test]
    fn a_loss_that_no_fault_explains_is_found() {
        let events = [
            held(&[(400, Answer::Unknown)]),
            vec![lost(1000, "unrenewed")],
        ]
        .concat();
        fails(
            events.clone(),
            Property::FalseLoss,
            &["no fault kept its process"],
        );
        let with = |fault: Fault| [events.clone(), vec![Event::Fault(fault)]].concat();
        passes(with(trouble(300, 500)));
        let of_another = Fault {
            process: Some(2),
            ..trouble(300, 500)
        };
        fails(with(of_another), Property::FalseLoss, &["no fault kept"]);
        let mine = reach::slot("", "a");
        let other_shard = Fault {
            slots: Some(vec![(mine + 1, mine + 9)]),
            ..trouble(300, 500)
        };
        fails(with(other_shard), Property::FalseLoss, &["no fault kept"]);
    }

    #[test]
    fn a_busy_machine_explains_a_loss() {
        let mut events = held(&[(400, Answer::Unknown)]);
        events.extend([
            lost(1000, "unrenewed"),
            Event::Lag(Lag { at: 900, by: 300 }),
        ]);
        passes(events);
    }

    /// Calls of a process, one of them fast.
    fn traffic(process: u32, took: u64) -> impl Iterator<Item = Event> {
        (0..3).map(move |n| {
            let at = (500 + n, 500 + n + if n == 0 { 1 } else { took });
            match call(CallKind::Claim, "b", "other", at, Answer::Queued, None) {
                Event::Call(call) => Event::Call(Call { process, ..call }),
                other => other,
            }
        })
    }

    #[test]
    fn servers_that_keep_everybody_waiting_explain_a_loss_but_not_on_a_file() {
        let mut events = held(&[(400, Answer::Unknown)]);
        events.push(lost(1000, "unrenewed"));
        let with = |process, took| {
            let mut events = events.clone();
            events.extend(traffic(process, took));
            events
        };
        passes(with(2, 400));
        fails(with(2, 20), Property::FalseLoss, &["no fault kept"]);
        // Of the process itself they say nothing.
        fails(with(1, 400), Property::FalseLoss, &["no fault kept"]);
        let disturbed = Event::Fault(Fault {
            process: Some(2),
            ..trouble(500, 900)
        });
        let disturbed = [with(2, 400), vec![disturbed]].concat();
        fails(disturbed, Property::FalseLoss, &["no fault kept"]);
        let start = Event::Start(crate::history::Start {
            version: crate::history::VERSION,
            grace: 100,
            lease: 1000,
            at_once: Some(50),
            ..crate::history::Start::default()
        });
        let history = crate::history::History::new([vec![start], with(2, 400)].concat());
        assert_eq!(super::super::check(&history).violations.len(), 1);
    }

    #[test]
    fn a_loss_by_the_word_of_the_store_within_the_lease_is_found() {
        let good = held(&[(400, Answer::Held), (1380, Answer::Lost)]);
        passes([good, vec![lost(1390, "expired")]].concat());
        let bad = held(&[(400, Answer::Held), (700, Answer::Lost)]);
        let bad = [bad, vec![lost(720, "forgotten")]].concat();
        fails(
            bad.clone(),
            Property::FalseLoss,
            &["forgotten", "the store said so"],
        );
        let broken = Fault {
            lock: Some("a".to_owned()),
            excuses: vec![Property::FalseLoss],
            ..trouble(650, 650)
        };
        passes([bad, vec![Event::Fault(broken)]].concat());
        passes([held(&[(400, Answer::Held)]), vec![lost(720, "closed")]].concat());
    }

    fn release_ends(tries: &[(u64, Answer)], reason: Option<&str>) -> Vec<Event> {
        let mut events = held(&[(400, Answer::Held)]);
        let calls = tries.iter().map(|(send, answer)| {
            let at = (*send, send + 10);
            call(CallKind::Release, "a", "r", at, *answer, Some(1))
        });
        events.extend(calls);
        events.push(Event::Release(Release {
            op: op(1, 1),
            invoke: 500,
            complete: 3000,
            outcome: if reason.is_some() {
                Outcome::Fail
            } else {
                Outcome::Ok
            },
            valid: true,
            reason: reason.map(str::to_owned),
            error: None,
        }));
        events
    }

    #[test]
    fn a_release_that_took_effect_says_so() {
        let (unknown, gone) = (Answer::Unknown, Answer::WasLost);
        passes(release_ends(
            &[(501, unknown), (900, Answer::Released)],
            None,
        ));
        passes(release_ends(
            &[(501, unknown), (2000, gone)],
            Some("expired"),
        ));
        let parts = ["an earlier try", "forgotten"];
        let bad = release_ends(&[(501, unknown), (2000, gone)], Some("forgotten"));
        fails(bad, Property::FalseLoss, &parts);
        let bad = release_ends(&[(501, gone)], Some("expired"));
        fails(bad, Property::FalseLoss, &["its lease was still running"]);
    }

    #[test]
    fn a_grant_that_comes_when_its_lease_is_nearly_over_may_be_lost() {
        let granted = |reply| {
            let (kind, at) = (CallKind::Claim, (100, reply));
            vec![
                call(kind, "a", "r", at, Answer::Granted, Some(1)),
                Event::Acquire(acquire(op(1, 1), "a", 1 << LOCAL_BITS, (99, reply + 1))),
                lost(1090, "unrenewed"),
            ]
        };
        passes(granted(900));
        fails(granted(500), Property::FalseLoss, &["no fault kept"]);
    }

    #[test]
    fn a_loss_that_no_reply_announced_is_found() {
        let renewed = held(&[(400, Answer::Held)]);
        let bad = [renewed.clone(), vec![lost(720, "expired")]].concat();
        fails(
            bad,
            Property::FalseLoss,
            &["no reply of the store said so", "0.000001 s"],
        );
        // What the store says of the release afterwards announced nothing.
        let release = (730, 740);
        let after = call(
            CallKind::Release,
            "a",
            "r",
            release,
            Answer::WasLost,
            Some(1),
        );
        let bad = [renewed.clone(), vec![lost(720, "forgotten"), after]].concat();
        fails(bad, Property::FalseLoss, &["no reply of the store said so"]);
        // When the lease is over, nobody has to be asked.
        passes([renewed.clone(), vec![lost(1390, "expired")]].concat());
        // A client that evicts its own hold needs no reply; whoever evicts is recorded.
        let broken = Fault {
            lock: Some("a".to_owned()),
            excuses: vec![Property::FalseLoss],
            ..trouble(700, 701)
        };
        let evicted = vec![Event::Fault(broken), lost(720, "evicted")];
        passes([renewed, evicted].concat());
    }

    #[test]
    fn a_release_that_reports_a_loss_which_nobody_announced_is_found() {
        let ends = |valid, complete| {
            let mut events = held(&[(400, Answer::Held)]);
            events.push(Event::Release(Release {
                op: op(1, 1),
                invoke: complete - 10,
                complete,
                outcome: Outcome::Fail,
                valid,
                reason: Some("expired".to_owned()),
                error: None,
            }));
            events
        };
        for valid in [false, true] {
            fails(
                ends(valid, 700),
                Property::FalseLoss,
                &["no reply of the store said so"],
            );
        }
        passes(ends(false, 1400));
        let said = call(CallKind::Renew, "a", "r", (1385, 1395), Answer::Lost, None);
        passes([ends(false, 1400), vec![said]].concat());
    }

    #[test]
    fn an_excuse_from_long_before_the_loss_is_none() {
        let renewals: Vec<_> = (1..=9).map(|n| (n * 400, Answer::Held)).collect();
        let mut events = held(&renewals);
        events.push(call(
            CallKind::Renew,
            "a",
            "r",
            (3700, 3710),
            Answer::Lost,
            Some(1),
        ));
        events.push(lost(3720, "forgotten"));
        let excuse = |at| {
            Event::Fault(Fault {
                excuses: vec![Property::FalseLoss],
                ..trouble(at, at)
            })
        };
        passes([events.clone(), vec![excuse(3650)]].concat());
        let early = [events, vec![excuse(500)]].concat();
        fails(early, Property::FalseLoss, &["the store said so"]);
    }

    #[test]
    fn a_fault_under_which_renewals_go_on_explains_no_loss() {
        let lost = vec![lost(1000, "unrenewed")];
        let events = [held(&[(400, Answer::Unknown)]), lost].concat();
        let with = |renewals, process| {
            let fault = Fault {
                renewals,
                process,
                ..trouble(300, 500)
            };
            [events.clone(), vec![Event::Fault(fault)]].concat()
        };
        for process in [None, Some(1)] {
            passes(with(Renewals::Delayed, process));
            let bad = with(Renewals::GoOn, process);
            fails(bad, Property::FalseLoss, &["no fault kept"]);
        }
        // Another fault beside it may be the reason.
        let other = Event::Fault(trouble(600, 700));
        passes([with(Renewals::GoOn, None), vec![other]].concat());
    }

    #[test]
    fn a_minority_that_is_away_costs_no_hold_that_every_server_has() {
        // Asked for at 9 099: nothing but this fault was near since.
        let grant = call(
            CallKind::Claim,
            "a",
            "r",
            (9100, 9109),
            Answer::Granted,
            Some(1),
        );
        let acquired = acquire(op(1, 1), "a", 1 << LOCAL_BITS, (9099, 9110));
        let events = vec![grant, Event::Acquire(acquired), lost(10_000, "unrenewed")];
        let fault = |at, until, renewals| {
            Event::Fault(Fault {
                renewals,
                ..trouble(at, until)
            })
        };
        let with = |more: Vec<Event>| [events.clone(), more].concat();
        let away = fault(9300, 9900, Renewals::OfWholeHolds);
        fails(
            with(vec![away.clone()]),
            Property::FalseLoss,
            &["no fault kept"],
        );
        // It was granted soon after another server was away: that one may not have it.
        let before = fault(7000, 8000, Renewals::OfWholeHolds);
        passes(with(vec![away.clone(), before]));
        let long_before = fault(7000, 7900, Renewals::OfWholeHolds);
        fails(
            with(vec![away, long_before]),
            Property::FalseLoss,
            &["no fault kept"],
        );
    }

    #[test]
    fn a_fault_is_over_when_the_store_has_given_up_what_it_waited_for() {
        let start = |settle| {
            Event::Start(crate::history::Start {
                version: crate::history::VERSION,
                grace: 500,
                lease: 1000,
                settle,
                ..crate::history::Start::default()
            })
        };
        let found = |settle| {
            let mut events = vec![start(settle), Event::Fault(trouble(1, 50))];
            let mut hold = held(&[(400, Answer::Held), (700, Answer::Unknown)]);
            hold.push(lost(1300, "unrenewed"));
            events.extend(hold);
            super::super::check(&crate::history::History::new(events)).violations
        };
        assert_eq!(found(None).len(), 0, "a history of before");
        assert_eq!(found(Some(200)).len(), 1);
        assert_eq!(found(Some(300)).len(), 0);
    }
}
