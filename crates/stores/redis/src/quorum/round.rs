//! One round of a claim: halves from all servers, then a vote on the number.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_core::store::{Busy, Claim, ClaimReply, Grant, LostReason, Queued};
use clinch_core::{Effect, Result};

use super::answers::Answers;
use super::chores::Chores;
use super::late::Latecomer;
use super::nodes::{Nodes, Step, too_few};
use super::outcome::{Heard, Refusal};
use super::requests::{Requests, Visit};
use crate::record::{Reply, step};

/// How often a vote is repeated with a greater number, because others claim at the same time.
const VOTES: u32 = 6;
/// The pause of a waiter at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(120);

/// What rounds work with.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) chores: Arc<Chores>,
    /// The greatest number that this client has seen.
    pub(crate) seen: AtomicU64,
    /// How long half a claim lives: a claimant that dies half-way is in nobody's way for longer.
    pub(crate) half: Duration,
}

impl Quorum {
    pub(crate) fn saw(&self, number: u64) {
        self.seen.fetch_max(number, Ordering::SeqCst);
    }
}

/// One round. It runs on the keeper to its end, whatever becomes of the caller.
pub(crate) struct Round {
    quorum: Arc<Quorum>,
    visit: Visit,
    claim: Claim,
    number: u64,
    /// Greater numbers only are voted for.
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
        let half = Claim {
            lease: round.claim.lease.min(round.quorum.half),
            ..round.claim.clone()
        };
        let packed = step::half_claim(&half, round.floor);
        let name = half.name.clone();
        let answers = (round.quorum.nodes).send_all(&name, &Step::Half(half, packed));
        let outcome = match token {
            None => round.fresh(answers).await,
            Some(token) => round.again(token, answers).await,
        };
        match outcome {
            Ok(grant) => Ok(ClaimReply::Granted(grant)),
            Err(refusal) => round.refused(refusal),
        }
    }

    /// A claim that is not known to have been granted.
    async fn fresh(&self, mut answers: Answers) -> Result<Grant, Refusal> {
        let nodes = &self.quorum.nodes;
        let mut heard = Heard::default();
        while heard.granted.len() < nodes.need {
            if heard.granted.len() + answers.pending() < nodes.need {
                return Err(self.explain_refusal(heard, answers).await);
            }
            if let Some((at, answer)) = answers.next().await {
                heard.count(at, answer);
            }
        }
        while let Some((at, answer)) = answers.ready().await {
            heard.count(at, answer);
        }
        match self.vote(&heard).await {
            Ok((seq, votes)) => {
                self.settle(seq, &heard, answers, votes);
                Ok(Grant {
                    seq,
                    predecessor: heard.predecessor(seq),
                })
            }
            Err((mut numbers, refusal)) => {
                for (at, grant) in &heard.granted {
                    numbers.push(grant.seq);
                    self.give_back(*at, &numbers);
                    numbers.pop();
                }
                self.take_in(None, answers);
                Err(refusal)
            }
        }
    }

    /// It cannot be granted any more: everything goes back, and the servers are heard until it is
    /// certain why.
    async fn explain_refusal(&self, mut heard: Heard, mut answers: Answers) -> Refusal {
        let nodes = &self.quorum.nodes;
        for (at, grant) in &heard.granted {
            self.give_back(*at, &[grant.seq]);
        }
        let refusal = loop {
            if let Some(refusal) = heard.refusal(nodes, &self.claim, answers.pending()) {
                break refusal;
            }
            let Some((at, answer)) = answers.next().await else {
                continue;
            };
            if let Ok(Reply::Granted(grant)) = &answer {
                self.give_back(at, &[grant.seq]);
            }
            heard.count(at, answer);
        };
        self.take_in(None, answers);
        refusal
    }

    /// Lets the servers vote; the number that has won, or those that have not.
    async fn vote(&self, heard: &Heard) -> Result<(u64, Answers), (Vec<u64>, Refusal)> {
        let nodes = &self.quorum.nodes;
        let greatest = heard.granted.iter().map(|(_, grant)| grant.seq).max();
        let mut number = greatest.unwrap_or(0).max(self.floor + 1);
        let mut ahead = 1_000;
        let mut tried = Vec::new();
        for _ in 0..VOTES {
            self.quorum.saw(number);
            tried.push(number);
            let packed = step::vote(self.claim.request, number, self.claim.lease);
            let mut votes = nodes.send_to(&self.claim.name, |at| {
                heard.has_granted(at).then(|| Step::Other(packed.clone()))
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
                // Others claim at the same time, which only readers can: a little ahead of them.
                (Some(last), None) => number = last.max(number) + ahead,
                (_, Some(error)) => {
                    let error = too_few(yes, nodes, Some(error)).with_effect(Effect::Possible);
                    return Err((tried, Refusal::Failed(error)));
                }
                // A half was too old.
                (None, None) => return Err((tried, Refusal::Busy { split: true })),
            }
            ahead *= 2;
        }
        Err((tried, Refusal::Busy { split: true }))
    }

    /// A claim that was granted before: the same token, if `need` servers still have it.
    async fn again(&self, token: u64, mut answers: Answers) -> Result<Grant, Refusal> {
        let nodes = &self.quorum.nodes;
        let mut heard = Heard::default();
        let mut same = 0;
        while same < nodes.need && same + answers.pending() >= nodes.need {
            let Some((at, answer)) = answers.next().await else {
                break;
            };
            same += usize::from(matches!(&answer, Ok(Reply::Granted(g)) if g.seq == token));
            heard.count(at, answer);
        }
        let packed = step::adopt(self.claim.request, token, token, self.claim.lease);
        let mut renewals = nodes.send_to(&self.claim.name, |at| {
            heard.has_granted(at).then(|| Step::Other(packed.clone()))
        });
        let (mut yes, mut failed) = (0, heard.failed.len());
        while let Some((_, answer)) = renewals.next().await {
            match answer {
                Ok(Reply::Yes) => yes += 1,
                Ok(_) => {}
                Err(_) => failed += 1,
            }
            if yes >= nodes.need {
                self.settle(token, &heard, answers, renewals);
                let latecomer = self.latecomer(Some(token));
                for (at, grant) in heard.granted.iter().filter(|(_, g)| g.seq != token) {
                    latecomer.take_in(*at, grant.seq);
                }
                return Ok(Grant {
                    seq: token,
                    predecessor: heard.predecessor(token),
                });
            }
        }
        match yes + failed + answers.pending() >= nodes.need {
            true => Err(Refusal::Failed(heard.too_few(nodes))),
            false => Err(Refusal::Gone(heard.gone.unwrap_or(LostReason::Forgotten))),
        }
    }

    /// It is granted. Servers that answer late get the number that has won.
    fn settle(&self, token: u64, heard: &Heard, late: Answers, votes: Answers) {
        {
            let mut state = self.visit.state();
            // A withdrawal may have come meanwhile: then nobody has it.
            if state.round == self.number {
                (state.token, state.refused) = (Some(token), 0);
            }
        }
        self.take_in(Some(token), late);
        let numbers: Vec<_> = heard.granted.iter().map(|(at, g)| (*at, g.seq)).collect();
        let latecomer = self.latecomer(Some(token));
        self.quorum.chores.hear(votes, move |at, answer| {
            let number = numbers.iter().find(|(place, _)| *place == at);
            if let (Ok(Reply::Behind { .. }), Some((_, number))) = (answer, number) {
                latecomer.take_in(at, *number);
            }
        });
    }

    /// It is not granted: what a server has of it, with one of these numbers, goes back.
    fn give_back(&self, at: usize, numbers: &[u64]) {
        let (chores, nodes) = (&self.quorum.chores, &self.quorum.nodes);
        for pair in numbers.chunks(2) {
            let (Some(one), Some(other)) = (pair.first(), pair.last()) else {
                continue;
            };
            self.quorum.saw(*one);
            self.quorum.saw(*other);
            let packed = step::back(self.claim.request, [*one, *other]);
            chores.insist(nodes, at, &self.claim.name, Step::Other(packed));
        }
    }

    /// Hears the rest in the background.
    fn take_in(&self, token: Option<u64>, late: Answers) {
        let latecomer = self.latecomer(token);
        self.quorum.chores.hear(late, move |at, answer| {
            if let Ok(Reply::Granted(grant)) = answer {
                latecomer.take_in(at, grant.seq);
            }
        });
    }

    fn latecomer(&self, token: Option<u64>) -> Latecomer {
        Latecomer {
            quorum: self.quorum.clone(),
            visit: self.visit.clone(),
            claim: self.claim.clone(),
            round: self.number,
            token,
        }
    }

    /// What the claimant hears when it is not granted.
    fn refused(&self, refusal: Refusal) -> Result<ClaimReply> {
        match refusal {
            Refusal::Busy { split } => {
                let refused = {
                    let mut state = self.visit.state();
                    state.done = !self.claim.queue;
                    // Who met others half-way comes again soon; who met a holder takes its time.
                    state.refused += u32::from(!split || state.refused < 2);
                    state.refused
                };
                let retry_after = Some(pause(refused));
                Ok(match self.claim.queue {
                    true => ClaimReply::Queued(Queued {
                        ahead: 0,
                        retry_after,
                        // There are none to be lost.
                        wakes_kept: true,
                    }),
                    false => ClaimReply::Busy(Busy { retry_after }),
                })
            }
            Refusal::Gone(reason) => {
                self.end();
                let nodes = &self.quorum.nodes;
                for at in 0..nodes.all.len() {
                    let step = Step::Withdraw(self.claim.request);
                    self.quorum
                        .chores
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

    /// Nobody asks for this request again.
    fn end(&self) {
        let mut state = self.visit.state();
        (state.token, state.done) = (None, true);
    }
}

/// Between half and one and a half of a span that doubles with every refusal, so that those who
/// met do not meet again.
fn pause(refused: u32) -> Duration {
    let span = FIRST_PAUSE * 2_u32.pow(refused.saturating_sub(1).min(4));
    let span = span.min(LONGEST_PAUSE);
    let random = RandomState::new().hash_one(refused) % 1024;
    span / 2 + span * u32::try_from(random).unwrap_or(512) / 1024
}
