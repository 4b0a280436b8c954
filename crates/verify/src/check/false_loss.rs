//! No loss is reported that was none.
//!
//! - A lease that was acknowledged is not lost while it runs: neither the client nor the store
//!   says so.
//! - A hold that ends because it could not be renewed was kept from it by a fault that reaches its process
//!   or its lock. So a hold at a healthy shard survives the loss of another one, and the holds of one
//!   process survive the pause of another.
//! - A release that took effect says so: one that was tried before without an answer, and finds nothing,
//!   had taken effect.

use std::collections::HashMap;

use clinch::LOCAL_BITS;

use super::{Hold, Index, Property, Violation};
use crate::history::{Answer, Call, CallKind, Outcome};

/// For how long a fault may keep renewals from being answered after its end: connections are given up
/// and made again.
fn settle(index: &Index<'_>) -> u64 {
    let start = index.history.start();
    let at_once = start.and_then(|start| start.at_once);
    at_once.unwrap_or(index.grace())
}

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
            (None, Some(_)) => released(hold, calls),
            _ => None,
        };
        found.extend(why.map(|why| tell(index, hold, &why)));
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

fn lost(index: &Index<'_>, hold: &Hold<'_>, calls: &[&Call], traffic: &Traffic) -> Option<String> {
    let lost = hold.lost?;
    let said = |call: &&&Call| matches!(call.answer, Answer::Lost | Answer::WasLost);
    match lost.reason.as_str() {
        "closed" | "max-hold" => None,
        "unrenewed" => {
            let window = (lost.at.saturating_sub(hold.acquire.lease), lost.at);
            let margin = hold.acquire.lease / 100 + (hold.acquire.lease / 10).min(10_000_000);
            // An acknowledgement has to get from the store to the engine as well.
            let way = hold.acquire.lease / 15 + 4 * index.lag(window);
            let end = valid_until(calls, lost.at, way, margin);
            if lost.at < end {
                let end = index.time(end);
                return Some(format!("it was acknowledged until {end}"));
            }
            let whose = (Some(hold.acquire.process), hold.acquire.lock.as_str());
            // It was last renewed a third of the lease after the acknowledgement that counts.
            let waited = (lost.at.saturating_sub(hold.acquire.lease / 3 * 2), lost.at);
            // A file has no servers, and a process that keeps others from it is no reason.
            let slow = !index.at_once() && others_waited(index, hold, traffic, waited);
            let busy = slow || index.lag(window) > hold.acquire.lease / 8;
            let quiet = index.is_quiet(whose, window, settle(index)) && !busy;
            quiet.then(|| "no fault kept its process from renewing it".to_owned())
        }
        _ => {
            let answer = calls.iter().find(said)?;
            let end = lease_end(calls, answer.reply);
            (answer.reply < end).then(|| {
                let (at, end) = (index.time(answer.reply), index.time(end));
                format!("the store said so at {at}, and it had acknowledged it until {end}")
            })
        }
    }
}

fn released(hold: &Hold<'_>, calls: &[&Call]) -> Option<String> {
    let release = hold.release?;
    if release.outcome != Outcome::Fail || !release.valid {
        return None;
    }
    let reason = release.reason.as_deref().unwrap_or_default();
    if matches!(reason, "closed" | "unrenewed" | "max-hold") {
        return None;
    }
    let releases = calls.iter().filter(|call| call.call == CallKind::Release);
    let mut tries = releases.filter(|call| call.reply <= release.complete);
    let end = lease_end(calls, release.complete);
    let unanswered = tries
        .clone()
        .find(|c| c.answer == Answer::Unknown && c.send < end);
    if unanswered.is_some() && matches!(reason, "forgotten" | "released") {
        return Some("an earlier try, which was not answered, had released it".to_owned());
    }
    let answer = tries.find(|call| call.answer == Answer::WasLost)?;
    (answer.reply < end).then(|| "its lease was still running".to_owned())
}

fn tell(index: &Index<'_>, hold: &Hold<'_>, why: &str) -> Violation {
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
    let span = (hold.acquire.complete, at);
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
    use crate::history::{Event, Fault, Lag, Lost, Release};

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
}
