//! Claims, and the ends of requests: what the ledger has to know of them.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Hold, Renewal};
use clinch_core::{Error, RequestId, Result};
use tokio::sync::oneshot;

use crate::group::{Answer, Coming, Group, Step};
use crate::ledger::{TRIES, too_late, window};
use crate::record::{Reply, step};

/// What the ledger has to know of a step.
pub(crate) enum About {
    Claim(Claimed),
    /// The end of this request.
    End(RequestId),
    Other,
}

/// A claim, to be sent again if the server finds it too late.
pub(crate) struct Claimed {
    request: RequestId,
    key: String,
    packed: Vec<u8>,
    /// For how long after it is made it may be applied.
    window: Duration,
    tries: u32,
}

impl Group {
    /// Sends a packed claim. It says until when it may be applied, and is sent again if it comes too late.
    pub(crate) fn claim(self: &Arc<Self>, key: String, claim: &Claim, packed: Vec<u8>) -> Coming {
        let (mut step, coming) = Step::new(key, packed, true);
        let claimed = Claimed {
            request: claim.request,
            key: step.key.clone(),
            packed: Vec::new(),
            window: window(self.timeout, claim.lease),
            tries: 0,
        };
        self.date(&mut step, claimed, 0);
        self.enqueue(step);
        coming
    }

    /// Sends a renewal, whose reply is waited for as long as the others of its batch can wait.
    pub(crate) fn renew(
        self: &Arc<Self>,
        key: String,
        renewal: &Renewal,
        limit: Duration,
    ) -> Coming {
        let (mut step, coming) = Step::new(key, step::renew(renewal), true);
        step.limit = Some(limit);
        self.enqueue(step);
        coming
    }

    /// Gives a hold up.
    pub(crate) fn release(self: &Arc<Self>, key: String, hold: &Hold) -> Coming {
        self.end(key, step::release(hold), hold.request)
    }

    /// Ends a request.
    pub(crate) fn withdraw(self: &Arc<Self>, key: String, request: RequestId) -> Coming {
        self.end(key, step::withdraw(request), request)
    }

    fn end(self: &Arc<Self>, key: String, packed: Vec<u8>, request: RequestId) -> Coming {
        let (mut step, coming) = Step::new(key, packed, false);
        step.answer.about = About::End(request);
        if let Some((step, keep)) = self.ledger.end(request, step) {
            self.send_end(step, keep);
        }
        coming
    }

    fn send_end(self: &Arc<Self>, mut step: Step, keep: u64) {
        step::set_keep(&mut step.packed, keep);
        step.restart();
        self.enqueue(step);
    }

    /// Whether a copy of this request has had no reply.
    pub(crate) fn is_unanswered(&self, request: RequestId) -> bool {
        self.ledger.latest(request) > 0
    }

    /// Writes into a claim until when it may be applied, if it is at least `now` at the server.
    fn date(&self, step: &mut Step, mut claimed: Claimed, now: u64) {
        let now = self.servers.time(&self.servers.lane(&step.key)).max(now);
        let latest = self.ledger.sent(claimed.request, now, claimed.window);
        step::set_latest(&mut step.packed, latest);
        claimed.packed.clone_from(&step.packed);
        claimed.tries += 1;
        step.answer.about = About::Claim(claimed);
    }

    /// Answers a step; its caller may have gone.
    pub(crate) fn tell(self: &Arc<Self>, answer: Answer, reply: Result<Reply>) {
        let lost = reply.as_ref().is_err_and(Error::may_have_taken_effect);
        match answer.about {
            About::Claim(claimed) => self.resolve(claimed.request, lost),
            About::End(request) if matches!(reply, Ok(Reply::Yes | Reply::No(_))) => {
                self.ledger.ended(request);
            }
            About::End(_) | About::Other => {}
        }
        let _ = answer.to.send(reply);
    }

    /// A claim is not under way any more.
    fn resolve(self: &Arc<Self>, request: RequestId, lost: bool) {
        let (ends, keep) = self.ledger.resolved(request, lost);
        for end in ends {
            self.send_end(end, keep);
        }
    }

    /// A claim came too late by the server's clock: what we think of that clock is wrong, or the way was
    /// slow.
    pub(crate) fn send_again(
        self: &Arc<Self>,
        mut claimed: Claimed,
        now: u64,
        to: oneshot::Sender<Result<Reply>>,
    ) {
        if to.is_closed() || claimed.tries >= TRIES {
            let answer = Answer {
                to,
                about: About::Claim(claimed),
            };
            return self.tell(answer, Err(too_late()));
        }
        let packed = std::mem::take(&mut claimed.packed);
        let (mut step, _) = Step::new(claimed.key.clone(), packed, true);
        step.answer.to = to;
        let request = claimed.request;
        self.date(&mut step, claimed, now);
        // Not before the next one is written down: so no end is sent between the two.
        self.resolve(request, false);
        self.enqueue(step);
    }
}
