//! Claims: dated, so that a copy that arrives late is refused, and sent again if refused by mistake.

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, mismatch};
use clinch_core::{Error, RequestId, Result};
use clinch_kit::batch;

use crate::batch::{Answer, Batcher, Job, Pending, Step};
use crate::ledger::{TRIES, too_late, window};
use crate::record::{Reply, step};
use crate::store::RedisStore;
use crate::strict;

/// Claims a lock, or repeats a claim.
pub(crate) async fn claim(store: &RedisStore, claim: &Claim) -> Result<ClaimReply> {
    strict::check(claim, &store.config)?;
    let packed = step::claim(claim, store.pushes.greatest());
    let key = store.keys.state(&claim.name);
    let subscription = store.servers.subscription(&key);
    let pending = store.batcher.claim(key.clone(), claim, packed);
    let reply = store
        .picked(pending, |reply| match reply {
            Reply::Mismatch { limit } => Some(Err(mismatch(&claim.name, limit, claim.limit))),
            reply => {
                let same = store.servers.subscription(&key) == subscription;
                reply.into_claim(subscription.is_some() && same).map(Ok)
            }
        })
        .await??;
    if let ClaimReply::Granted(grant) = &reply {
        store.pushes.saw(grant.seq);
    }
    Ok(reply)
}

/// What the ledger must record of a step.
#[derive(Debug)]
pub(crate) enum About {
    Claim(Claimed),
    /// The end of this request.
    End(RequestId),
    Other,
}

/// A claim, kept so that it can be sent again if the server refuses it as too late.
#[derive(Debug)]
pub(crate) struct Claimed {
    request: RequestId,
    key: String,
    packed: Vec<u8>,
    /// How long after sending it may be applied.
    window: Duration,
    tries: u32,
}

impl Batcher {
    /// Sends a packed claim, with the latest time at which it may be applied.
    pub(crate) fn claim(&self, key: String, claim: &Claim, packed: Vec<u8>) -> Pending {
        let mut step = Step::new(key, packed, true);
        let claimed = Claimed {
            request: claim.request,
            key: step.key.clone(),
            packed: Vec::new(),
            window: window(self.steps().timeout, claim.lease),
            tries: 0,
        };
        self.date(&mut step, claimed, 0);
        self.send(step)
    }

    /// Writes into a claim until when it may be applied; the server's clock is at least `now`.
    fn date(&self, step: &mut Step, mut claimed: Claimed, now: u64) {
        let steps = self.steps();
        let now = steps.servers.time(&steps.servers.route(&step.key)).max(now);
        let latest = steps.ledger.sent(claimed.request, now, claimed.window);
        step::set_latest(&mut step.packed, latest);
        claimed.packed.clone_from(&step.packed);
        claimed.tries += 1;
        step.about = About::Claim(claimed);
    }

    /// Delivers the reply to a step; its caller may have gone.
    pub(crate) fn reply(&self, answer: Answer, reply: Result<Reply>) {
        let lost = reply.as_ref().is_err_and(Error::may_have_taken_effect);
        match answer.about {
            About::Claim(claimed) => self.resolve(claimed.request, lost),
            About::End(request) if matches!(reply, Ok(Reply::Yes | Reply::No(_))) => {
                self.steps().ledger.ended(request);
            }
            About::End(_) | About::Other => {}
        }
        answer.reply.send(reply);
    }

    /// A claim is not in flight any more: sends the ends of its request that waited for it.
    fn resolve(&self, request: RequestId, lost: bool) {
        let (ends, keep) = self.steps().ledger.resolved(request, lost);
        for end in ends {
            self.send_end(end, keep);
        }
    }

    /// Sends a claim again that arrived too late by the server's clock: the estimate of that clock was
    /// wrong, or the network was slow.
    pub(crate) fn send_again(&self, mut claimed: Claimed, now: u64, reply: batch::Reply<Reply>) {
        if reply.is_closed() || claimed.tries >= TRIES {
            let answer = Answer {
                reply,
                about: About::Claim(claimed),
            };
            return self.reply(answer, Err(too_late()));
        }
        let packed = std::mem::take(&mut claimed.packed);
        let mut step = Step::new(claimed.key.clone(), packed, true);
        let request = claimed.request;
        self.date(&mut step, claimed, now);
        // Only after the next copy is recorded, so that no end is sent between the two.
        self.resolve(request, false);
        self.enqueue(Job { step, reply });
    }
}
