//! One round of a claim: prepare at all servers, then a vote on the number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{Busy, Claim, ClaimReply, Grant, LostReason, Queued};
use clinch_core::{Effect, Result};
use clinch_kit::backoff::{between, doubled};

use super::answers::Answers;
use super::background::Background;
use super::late::Decided;
use super::ledger::{Ledger, Visit};
use super::nodes::{Nodes, Step, too_few};
use super::prepared::{Prepared, Refusal};
use crate::record::{Reply, step};

/// How often a vote is repeated with a greater number because of concurrent claims.
const VOTES: u32 = 6;
/// The shortest and the longest pause of a waiter.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(120);

/// The shared state of rounds.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) background: Arc<Background>,
    /// The greatest number that this client has seen.
    pub(crate) seen: AtomicU64,
    /// The lease of a prepared claim: a claimant that dies before the vote blocks others no longer.
    pub(crate) prepare_lease: Duration,
}

impl Quorum {
    pub(crate) fn saw(&self, number: u64) {
        self.seen.fetch_max(number, Ordering::SeqCst);
    }
}

/// One round. It runs to its end on the keeper, even if the caller is dropped.
pub(crate) struct Round {
    quorum: Arc<Quorum>,
    visit: Visit,
    claim: Claim,
    number: u64,
    /// Only greater numbers are voted for.
    floor: u64,
}

impl Round {
    pub(crate) async fn run(quorum: Arc<Quorum>, visit: Visit, claim: Claim) -> Result<ClaimReply> {
        let (round, token) = {
            let mut state = visit.state();
            state.round += 1;
            state.done = false;
            let round = Self {
                number: state.round,
                floor: quorum.seen.load(Ordering::SeqCst),
                visit: visit.clone(),
                quorum,
                claim,
            };
            (round, state.token)
        };
        let prepare = Claim {
            lease: round.claim.lease.min(round.quorum.prepare_lease),
            ..round.claim.clone()
        };
        let packed = step::prepare(&prepare, round.floor);
        let name = prepare.name.clone();
        let answers = (round.quorum.nodes).send_all(&name, &Step::Prepare(prepare, packed));
        let outcome = match token {
            None => round.fresh(answers).await,
            Some(token) => round.again(token, answers).await,
        };
        match outcome {
            Ok(grant) => Ok(ClaimReply::Granted(grant)),
            Err(refusal) => round.refused(refusal),
        }
    }

    /// A claim without a grant so far.
    async fn fresh(&self, mut answers: Answers) -> Result<Grant, Refusal> {
        let nodes = &self.quorum.nodes;
        let mut prepared = Prepared::default();
        while prepared.granted.len() < nodes.need {
            if prepared.granted.len() + answers.pending() < nodes.need {
                return Err(self.explain_refusal(prepared, answers).await);
            }
            if let Some((at, answer)) = answers.next().await {
                prepared.count(at, answer);
            }
        }
        while let Some((at, answer)) = answers.ready().await {
            prepared.count(at, answer);
        }
        match self.vote(&prepared).await {
            Ok((seq, votes)) => {
                self.settle(seq, &prepared, answers, votes);
                Ok(Grant::new(seq, prepared.predecessor(seq)))
            }
            Err((mut numbers, refusal)) => {
                for (at, grant) in &prepared.granted {
                    numbers.push(grant.seq);
                    self.abort(*at, &numbers);
                    numbers.pop();
                }
                self.resolve_late(None, answers);
                Err(refusal)
            }
        }
    }

    /// It cannot be granted any more: aborts it at all servers, and collects replies until the reason
    /// is certain.
    async fn explain_refusal(&self, mut prepared: Prepared, mut answers: Answers) -> Refusal {
        let nodes = &self.quorum.nodes;
        for (at, grant) in &prepared.granted {
            self.abort(*at, &[grant.seq]);
        }
        let refusal = loop {
            if let Some(refusal) = prepared.refusal(nodes, &self.claim, answers.pending()) {
                break refusal;
            }
            let Some((at, answer)) = answers.next().await else {
                continue;
            };
            if let Ok(Reply::Granted(grant)) = &answer {
                self.abort(at, &[grant.seq]);
            }
            prepared.count(at, answer);
        };
        self.resolve_late(None, answers);
        refusal
    }

    /// Lets the servers vote. Returns the number that has won, or those that were tried.
    async fn vote(&self, prepared: &Prepared) -> Result<(u64, Answers), (Vec<u64>, Refusal)> {
        let nodes = &self.quorum.nodes;
        let greatest = prepared.granted.iter().map(|(_, grant)| grant.seq).max();
        let mut number = greatest.unwrap_or(0).max(self.floor + 1);
        let mut ahead = 1_000;
        let mut tried = Vec::new();
        for _ in 0..VOTES {
            self.quorum.saw(number);
            tried.push(number);
            let packed = step::vote(self.claim.request, number, self.claim.lease);
            let mut votes = nodes.send_to(&self.claim.name, |at| {
                prepared
                    .has_granted(at)
                    .then(|| Step::Other(packed.clone()))
            });
            let (mut yes, mut behind, mut failed) = (0, None, None);
            while yes < nodes.need && yes + votes.pending() >= nodes.need {
                match votes.next().await {
                    Some((_, Ok(Reply::Yes))) => yes += 1,
                    Some((_, Ok(Reply::Behind { last }))) => behind = behind.max(Some(last)),
                    Some((_, Ok(_))) => {}
                    Some((_, Err(error))) => failed = Some(error),
                    None => break,
                }
            }
            if yes >= nodes.need {
                return Ok((number, votes));
            }
            match (behind, failed) {
                // Concurrent claims of readers: a little ahead of them.
                (Some(last), None) => number = last.max(number) + ahead,
                (_, Some(error)) => {
                    let error = too_few(yes, nodes, Some(error)).with_effect(Effect::Possible);
                    return Err((tried, Refusal::Failed(error)));
                }
                // A prepared claim has expired.
                (None, None) => return Err((tried, Refusal::Busy { split: true })),
            }
            ahead *= 2;
        }
        Err((tried, Refusal::Busy { split: true }))
    }

    /// A claim that was granted before: the same token, if `need` servers still have it.
    async fn again(&self, token: u64, mut answers: Answers) -> Result<Grant, Refusal> {
        let nodes = &self.quorum.nodes;
        let mut prepared = Prepared::default();
        let mut same = 0;
        while same < nodes.need && same + answers.pending() >= nodes.need {
            let Some((at, answer)) = answers.next().await else {
                break;
            };
            same += usize::from(matches!(&answer, Ok(Reply::Granted(g)) if g.seq == token));
            prepared.count(at, answer);
        }
        let packed = step::catch_up(self.claim.request, token, token, self.claim.lease);
        let mut renewals = nodes.send_to(&self.claim.name, |at| {
            prepared
                .has_granted(at)
                .then(|| Step::Other(packed.clone()))
        });
        let (mut yes, mut failed) = (0, prepared.failed.len());
        while let Some((_, answer)) = renewals.next().await {
            match answer {
                Ok(Reply::Yes) => yes += 1,
                Ok(_) => {}
                Err(_) => failed += 1,
            }
            if yes >= nodes.need {
                self.settle(token, &prepared, answers, renewals);
                let decided = self.decided(Some(token));
                for (at, grant) in prepared.granted.iter().filter(|(_, g)| g.seq != token) {
                    decided.resolve(*at, grant.seq);
                }
                return Ok(Grant::new(token, prepared.predecessor(token)));
            }
        }
        match yes + failed + answers.pending() >= nodes.need {
            true => Err(Refusal::Failed(prepared.too_few(nodes))),
            false => Err(Refusal::Gone(
                prepared.gone.unwrap_or(LostReason::Forgotten),
            )),
        }
    }

    /// It is granted. Servers that reply late catch up with the token.
    fn settle(&self, token: u64, prepared: &Prepared, late: Answers, votes: Answers) {
        {
            let mut state = self.visit.state();
            // After a withdrawal meanwhile it is not held.
            if state.round == self.number {
                (state.token, state.refused) = (Some(token), 0);
            }
        }
        self.resolve_late(Some(token), late);
        let numbers: Vec<_> = prepared
            .granted
            .iter()
            .map(|(at, g)| (*at, g.seq))
            .collect();
        let decided = self.decided(Some(token));
        self.quorum.background.handle(votes, move |at, answer| {
            let number = numbers.iter().find(|(place, _)| *place == at);
            if let (Ok(Reply::Behind { .. }), Some((_, number))) = (answer, number) {
                decided.resolve(at, *number);
            }
        });
    }

    /// Aborts it at a server, if it has one of these numbers there.
    fn abort(&self, at: usize, numbers: &[u64]) {
        let (background, nodes) = (&self.quorum.background, &self.quorum.nodes);
        for pair in numbers.chunks(2) {
            let (Some(one), Some(other)) = (pair.first(), pair.last()) else {
                continue;
            };
            self.quorum.saw(*one);
            self.quorum.saw(*other);
            let packed = step::abort(self.claim.request, [*one, *other]);
            background.insist(nodes, at, &self.claim.name, Step::Other(packed));
        }
    }

    /// Handles the remaining prepare replies in the background.
    fn resolve_late(&self, token: Option<u64>, late: Answers) {
        let decided = self.decided(token);
        self.quorum.background.handle(late, move |at, answer| {
            if let Ok(Reply::Granted(grant)) = answer {
                decided.resolve(at, grant.seq);
            }
        });
    }

    fn decided(&self, token: Option<u64>) -> Decided {
        Decided {
            quorum: self.quorum.clone(),
            visit: self.visit.clone(),
            claim: self.claim.clone(),
            round: self.number,
            token,
        }
    }

    /// The reply to a claim that is not granted.
    fn refused(&self, refusal: Refusal) -> Result<ClaimReply> {
        match refusal {
            Refusal::Busy { split } => {
                let refused = {
                    let mut state = self.visit.state();
                    state.done = !self.claim.queue;
                    // After a split retry soon; after a holder back off.
                    state.refused += u32::from(!split || state.refused < 2);
                    state.refused
                };
                let retry_after = Some(pause(refused));
                Ok(match self.claim.queue {
                    // There are no wakes to be lost.
                    true => ClaimReply::Queued(Queued::new(0, retry_after).with_wakes_kept(true)),
                    false => ClaimReply::Busy(Busy::new(retry_after)),
                })
            }
            Refusal::Gone(reason) => {
                self.end();
                let nodes = &self.quorum.nodes;
                for at in 0..nodes.all.len() {
                    let step = Step::Withdraw(self.claim.request);
                    self.quorum
                        .background
                        .insist(nodes, at, &self.claim.name, step.clone());
                }
                Ok(ClaimReply::Gone(reason))
            }
            Refusal::Failed(error) => {
                if !error.may_have_taken_effect() {
                    self.end();
                }
                Err(error)
            }
        }
    }

    /// This request will not be claimed again.
    fn end(&self) {
        let mut state = self.visit.state();
        (state.token, state.done) = (None, true);
    }
}

/// Backoff with jitter: between half and one and a half of a span that doubles with every refusal.
fn pause(refused: u32) -> Duration {
    let span = doubled(FIRST_PAUSE, refused.saturating_sub(1), LONGEST_PAUSE);
    between(span / 2, span * 3 / 2)
}
