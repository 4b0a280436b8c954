//! Ends of requests: release, withdrawal, eviction.
//!
//! A release or a withdrawal waits for the claims of its request that are in flight, and carries the
//! latest time at which a copy of them may arrive (see `ledger`).

use clinch_core::store::{Claim, Evicted, Hold, LostReason, ReleaseReply};
use clinch_core::{Name, RequestId, Result};

use crate::batch::{Batcher, Job, Pending, Step};
use crate::claim::About;
use crate::record::{Reply, step};
use crate::store::RedisStore;

/// Releases a hold.
pub(crate) async fn release(store: &RedisStore, hold: &Hold) -> Result<ReleaseReply> {
    let pending = store.batcher.release(store.keys.state(&hold.name), hold);
    Ok(match store.picked(pending, held).await? {
        Ok(()) => ReleaseReply::Released,
        Err(reason) => ReleaseReply::WasLost(reason),
    })
}

/// Ends a claim, in whatever state it is.
pub(crate) async fn withdraw(store: &RedisStore, claim: &Claim) -> Result<()> {
    let key = store.keys.state(&claim.name);
    let pending = store.batcher.withdraw(key, claim.request);
    store.picked(pending, held).await?.ok();
    Ok(())
}

/// Breaks a hold or ends a lock-delay, or all of them.
pub(crate) async fn evict(store: &RedisStore, name: &Name, seq: Option<u64>) -> Result<Evicted> {
    store
        .step(name, step::evict(seq), |reply| match reply {
            Reply::Evicted(evicted) => Some(evicted),
            _ => None,
        })
        .await
}

/// A hold is lost, and will not be released: copies of its claim must find the request ended.
pub(crate) fn abandon(store: &RedisStore, hold: &Hold) {
    // A copy without a reply may still be applied for a few seconds.
    if store.batcher.is_unanswered(hold.request) {
        let key = store.keys.state(&hold.name);
        drop(store.batcher.withdraw(key, hold.request));
    }
}

/// Held, or why not.
pub(crate) fn held(reply: Reply) -> Option<Result<(), LostReason>> {
    match reply {
        Reply::Yes => Some(Ok(())),
        Reply::No(reason) => Some(Err(reason)),
        _ => None,
    }
}

impl Batcher {
    /// Releases a hold.
    pub(crate) fn release(&self, key: String, hold: &Hold) -> Pending {
        self.end(key, step::release(hold), hold.request)
    }

    /// Ends a request.
    pub(crate) fn withdraw(&self, key: String, request: RequestId) -> Pending {
        self.end(key, step::withdraw(request), request)
    }

    fn end(&self, key: String, packed: Vec<u8>, request: RequestId) -> Pending {
        let mut step = Step::new(key, packed, false);
        step.about = About::End(request);
        let (job, pending) = Job::new(step);
        if let Some((job, keep)) = self.steps().ledger.end(request, job) {
            self.send_end(job, keep);
        }
        pending
    }

    pub(crate) fn send_end(&self, mut job: Job, keep: u64) {
        step::set_keep(&mut job.step.packed, keep);
        self.enqueue(job);
    }

    /// Whether a copy of this request has had no reply.
    pub(crate) fn is_unanswered(&self, request: RequestId) -> bool {
        self.steps().ledger.latest(request) > 0
    }
}
