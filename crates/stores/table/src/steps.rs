//! Applies steps to the state of a name: the machine of core, and the rules of this store.

use clinch_core::machine::{Ended, Entry, NameState, Outcome, Phase, Sequence};
use clinch_core::store::{
    Claim, ClaimReply, Ending, Evicted, Hold, ReleaseReply, RenewReply, Renewal,
};
use clinch_core::{BootTime, RequestId, Result};

use crate::Row;
use crate::late_copies::LateCopies;
use crate::record::{expire_tombstones, moment};

/// A step on a name.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Claim(Claim),
    Renew(Renewal),
    Release(Hold),
    Withdraw(Claim),
    Evict(Option<u64>),
    /// Ends what has run out.
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

/// Sequence numbers: above all that the name has had, and near the server's clock, so that they rise even
/// if the row is lost.
struct Numbers(u64);

impl Sequence for Numbers {
    fn next(&mut self, after: u64) -> u64 {
        self.0 = self.0.max(after) + 1;
        self.0
    }
}

/// What some steps made of a row.
pub(crate) struct Changed {
    pub(crate) state: NameState,
    /// Whether there is anything to write.
    pub(crate) differs: bool,
    /// Whether there was a claim among the steps.
    pub(crate) claims: bool,
    /// The new version of the row.
    pub(crate) version: u64,
    pub(crate) answers: Vec<Result<Answer>>,
    pub(crate) out: Outcome,
}

/// Applies steps to a row. `highest` is the highest sequence number that this client has seen; `late` are
/// the copies that may still arrive.
pub(crate) fn apply(
    row: &Row,
    state: NameState,
    steps: &[Step],
    highest: u64,
    late: &LateCopies,
) -> Changed {
    let before = state.clone();
    let mut state = state;
    let mut out = Outcome::default();
    let now = row.moment();
    if !row.cached {
        cap_ends(&mut state, now + row.slack);
    }
    let run_out = |entry: &&Entry| entry.until <= now && !entry.is_delayed();
    let run_out: Vec<_> = state.entries.iter().filter(run_out).cloned().collect();
    let version = row.version.unwrap_or(0);
    let greatest = version.max(row.watermark).max(highest);
    let mut numbers = Numbers(greatest.max(row.now.saturating_sub(1)));
    let answers = steps
        .iter()
        .map(|step| {
            let answer = one(&mut state, step, now, &mut numbers, &mut out, late);
            let ended = match step {
                Step::Release(hold) => hold.request,
                Step::Withdraw(claim) => claim.request,
                _ => return answer,
            };
            if let Some(until) = late.tombstone_until(ended, row.now) {
                state.keep(ended, moment(until));
            }
            answer
        })
        .collect();
    for entry in &run_out {
        add_tombstone(&mut state, entry, Ending::Expired, entry.until, late);
    }
    expire_tombstones(&mut state, now);
    keep_leases(&before, &mut state);
    Changed {
        differs: state != before,
        claims: steps.iter().any(|step| matches!(step, Step::Claim(_))),
        version: numbers.0.max(row.now).max(version + 1),
        state,
        answers,
        out,
    }
}

fn one(
    state: &mut NameState,
    step: &Step,
    now: BootTime,
    numbers: &mut Numbers,
    out: &mut Outcome,
    late: &LateCopies,
) -> Result<Answer> {
    Ok(match step {
        Step::Claim(claim) => {
            let reply = state.claim(claim, now, numbers, out)?;
            // A repeated claim may have a longer lease than the first: see `cap_ends`.
            let repeated = state
                .entries
                .iter_mut()
                .find(|e| e.request == claim.request);
            if let Some(entry) = repeated {
                entry.lease = entry.lease.max(claim.lease);
            }
            Answer::Claim(reply)
        }
        Step::Renew(renewal) => Answer::Renew(state.renew(renewal, now, numbers, out)),
        Step::Release(hold) => Answer::Release(state.release(hold, now, numbers, out)),
        Step::Withdraw(claim) => {
            state.withdraw(claim, now, numbers, out);
            Answer::Done
        }
        Step::Evict(seq) => {
            let before = state.entries.clone();
            let evicted = state.evict(*seq, now, numbers, out);
            let broken = |e: &&Entry| e.seq().is_some_and(|seq| evicted.seqs.contains(&seq));
            for entry in before.iter().filter(broken) {
                add_tombstone(state, entry, Ending::Evicted, now, late);
            }
            Answer::Evicted(evicted)
        }
        Step::Tick => {
            state.tick(now, numbers, out);
            Answer::Done
        }
    })
}

/// Keeps a tombstone of a claim that another client or time has ended, for as long as a copy of it may
/// arrive. If many end at once, the machine may have forgotten the first of them by now.
fn add_tombstone(
    state: &mut NameState,
    entry: &Entry,
    ending: Ending,
    at: BootTime,
    late: &LateCopies,
) {
    if !state.ended.iter().any(|e| e.request == entry.request) {
        let ended = Ended {
            request: entry.request,
            seq: entry.seq(),
            owner: entry.owner.clone(),
            ending,
            at,
            keep: at,
        };
        state.ended.insert(0, ended);
    }
    state.keep(entry.request, at + late.tombstone_span(entry.lease));
}

/// No claim ends later than its whole lease from now, unless the server's clock was set back: then a dead
/// holder must not stay that much longer. `latest` is an upper bound on the clock when the row was read: a
/// row that was written while the statement waited is right.
fn cap_ends(state: &mut NameState, latest: BootTime) {
    for entry in &mut state.entries {
        let span = match entry.phase {
            Phase::Held { .. } | Phase::Waiting => entry.lease,
            Phase::Delayed { .. } => entry.lock_delay,
        };
        entry.until = entry.until.min(latest + span);
    }
}

/// A claim that is granted while it waits counts its lease from when it was last sent. The server's clock
/// is read when a statement begins, perhaps before a claim arrived that the statement then reads: a grant
/// must not end before its place in the queue would have.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clinch_core::{Identity, Name};

    use super::*;
    use crate::Content;

    const SECOND: u64 = 1_000_000;
    const LEASE: Duration = Duration::from_secs(4);
    /// More than a row remembers by count.
    const MANY: u128 = 12;

    struct World {
        row: Row,
        late: LateCopies,
        identity: Identity,
    }

    impl World {
        fn new() -> Self {
            Self {
                row: Row::new(Some(1), Content::default(), 1000 * SECOND),
                late: LateCopies::new(Duration::from_secs(5)),
                identity: Identity::new(),
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.row.now += seconds * SECOND;
        }

        fn claim(&self, request: u128, limit: u32) -> Claim {
            let name = Name::new("a").unwrap();
            Claim {
                request: RequestId::from_u128(request),
                limit,
                ..Claim::new(&self.identity, name, LEASE)
            }
        }

        fn step(&mut self, step: Step) -> Answer {
            let state = self.row.state(&Name::new("a").unwrap()).unwrap();
            let mut changed = apply(&self.row, state, &[step], 0, &self.late);
            self.row.version = Some(changed.version);
            self.row.content = Content::of_state(&changed.state);
            changed.answers.remove(0).unwrap()
        }

        fn claims(&mut self, request: u128, limit: u32) -> ClaimReply {
            let claim = self.claim(request, limit);
            match self.step(Step::Claim(claim)) {
                Answer::Claim(reply) => reply,
                other => panic!("{other:?}"),
            }
        }

        /// Others take it and give it up, one after the other.
        fn others_come_and_go(&mut self, limit: u32) {
            for request in 0..MANY {
                let claim = self.claim(1000 + request, limit);
                let taken = self.step(Step::Claim(claim.clone()));
                let granted = matches!(taken, Answer::Claim(ClaimReply::Granted(_)));
                assert!(granted, "{taken:?}");
                self.step(Step::Withdraw(claim));
            }
        }

        fn all_are_gone(&mut self, limit: u32) {
            for request in 1..=MANY {
                let late = self.claims(request, limit);
                assert!(matches!(late, ClaimReply::Gone(_)), "{request}: {late:?}");
            }
        }
    }

    /// Copies of their claims may arrive within three times the patience of a client and half a lease.
    #[test]
    fn claims_that_ran_out_are_remembered_by_time() {
        let limit = u32::try_from(MANY).unwrap();
        // All of them hold, or one does and the others wait.
        for limit in [1, limit] {
            let mut world = World::new();
            for request in 1..=MANY {
                world.claims(request, limit);
            }
            world.pass(5);
            world.others_come_and_go(limit);
            world.pass(17);
            world.all_are_gone(limit);
            // And not for ever.
            world.pass(3);
            world.others_come_and_go(limit);
            assert_eq!(world.row.content.state, None);
        }
    }

    #[test]
    fn claims_that_were_evicted_are_remembered_by_time() {
        let mut world = World::new();
        let limit = u32::try_from(MANY).unwrap();
        for request in 1..=MANY {
            world.claims(request, limit);
        }
        world.step(Step::Evict(None));
        world.others_come_and_go(limit);
        world.pass(17);
        world.all_are_gone(limit);
        world.pass(3);
        world.others_come_and_go(limit);
        assert_eq!(world.row.content.state, None);
    }
}
