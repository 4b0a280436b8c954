//! What a step does to the state of a name.

use clinch_core::machine::{NameState, Outcome, Phase, Sequence};
use clinch_core::store::{Claim, ClaimReply, Evicted, Hold, ReleaseReply, RenewReply, Renewal};
use clinch_core::{BootTime, RequestId, Result};

use crate::late::{HOLD_UP, Late};
use crate::row::{Row, moment, remember_in_time};

/// A step of the general way.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Claim(Claim),
    Renew(Renewal),
    Release(Hold),
    Withdraw(Claim),
    Evict(Option<u64>),
    /// Let time pass.
    Tick,
}

/// Its answer.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Claim(ClaimReply),
    Renew(RenewReply),
    Release(ReleaseReply),
    Evicted(Evicted),
    Done,
}

/// Tokens: above everything that the name has had, and near the server's clock, so that they rise
/// even if the row is lost.
struct Tokens(u64);

impl Sequence for Tokens {
    fn next(&mut self, after: u64) -> u64 {
        self.0 = self.0.max(after) + 1;
        self.0
    }
}

/// What some steps came to.
pub(crate) struct Changed {
    pub(crate) state: NameState,
    /// Whether there is anything to write.
    pub(crate) differs: bool,
    /// Whether there was a claim among the steps.
    pub(crate) claims: bool,
    /// The version that the row gets.
    pub(crate) seq: u64,
    pub(crate) answers: Vec<Result<Answer>>,
    pub(crate) out: Outcome,
}

/// Applies steps to a row. `seen` is the greatest token that this client knows of, and `late` what it
/// knows of copies that may still arrive.
pub(crate) fn apply(
    row: &Row,
    state: NameState,
    steps: &[&Step],
    seen: u64,
    late: &Late,
) -> Changed {
    let before = state.clone();
    let mut state = state;
    let mut out = Outcome::default();
    let now = row.moment();
    if !row.recent {
        end_in_time(&mut state, now + row.slack);
    }
    let greatest = row.seq.unwrap_or(0).max(row.floor).max(seen);
    let mut tokens = Tokens(greatest.max(row.now.saturating_sub(1)));
    let answers = steps
        .iter()
        .map(|step| {
            let answer = one(&mut state, step, now, &mut tokens, &mut out);
            let ended = match step {
                Step::Release(hold) => hold.request,
                Step::Withdraw(claim) => claim.request,
                _ => return answer,
            };
            if let Some(until) = late.remember(ended, row.now) {
                state.keep(ended, moment(until));
            }
            answer
        })
        .collect();
    remember_in_time(&mut state, now);
    keep_leases(&before, &mut state);
    Changed {
        differs: state != before,
        claims: steps.iter().any(|step| matches!(step, Step::Claim(_))),
        seq: tokens.0.max(row.now).max(row.seq.unwrap_or(0) + 1),
        state,
        answers,
        out,
    }
}

fn one(
    state: &mut NameState,
    step: &Step,
    now: BootTime,
    tokens: &mut Tokens,
    out: &mut Outcome,
) -> Result<Answer> {
    Ok(match step {
        Step::Claim(claim) => {
            let reply = state.claim(claim, now, tokens, out)?;
            // A repeated claim may have a longer lease than the first: see `end_in_time`.
            let repeated = state
                .entries
                .iter_mut()
                .find(|e| e.request == claim.request);
            if let Some(entry) = repeated {
                entry.lease = entry.lease.max(claim.lease);
            }
            Answer::Claim(reply)
        }
        Step::Renew(renewal) => Answer::Renew(state.renew(renewal, now, tokens, out)),
        Step::Release(hold) => Answer::Release(state.release(hold, now, tokens, out)),
        Step::Withdraw(claim) => {
            state.withdraw(claim, now, tokens, out);
            Answer::Done
        }
        Step::Evict(seq) => {
            let held = state.entries.iter().filter(|e| e.seq().is_some());
            let held: Vec<_> = held.map(|e| (e.request, e.lease)).collect();
            let evicted = state.evict(*seq, now, tokens, out);
            // Only their clients know whether a copy of their claims may still arrive: none does after
            // half a lease.
            for (request, lease) in held {
                state.keep(request, now + lease + HOLD_UP);
            }
            Answer::Evicted(evicted)
        }
        Step::Tick => {
            state.tick(now, tokens, out);
            Answer::Done
        }
    })
}

/// No claim ends later than its whole lease from now, unless the server's clock was set back since:
/// then a dead holder must not stay for as long as that. `latest` is the latest that the clock can
/// have been when the row was read: a row that was written while the statement waited is right.
fn end_in_time(state: &mut NameState, latest: BootTime) {
    for entry in &mut state.entries {
        let span = match entry.phase {
            Phase::Held { .. } | Phase::Waiting => entry.lease,
            Phase::Delayed { .. } => entry.lock_delay,
        };
        entry.until = entry.until.min(latest + span);
    }
}

/// A claim that is granted while it waits counts its lease from when it was last sent. The server's
/// clock is read when a statement begins, which may be before a claim arrived that the statement
/// then sees: the lease of a grant must not end before that of the place in the queue would have.
fn keep_leases(before: &NameState, after: &mut NameState) {
    let waited = |request: RequestId| {
        let entry = before.entries.iter().find(|e| e.request == request)?;
        (entry.phase == Phase::Waiting).then_some(entry.until)
    };
    for entry in &mut after.entries {
        if entry.seq().is_some()
            && let Some(until) = waited(entry.request)
        {
            entry.until = entry.until.max(until);
        }
    }
}
