//! Acquires a lock: local queue, claim at the store, wait.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::attempt::Attempt;
use super::local_queue::Entered;
use super::local_wait::{LocalWait, WaitEnd};
use super::settings::backoff;
use super::slot::Slot;
use super::{ClaimRequest, Engine, LocalHold, with_timeout, withdraw};
use crate::store::ClaimReply;
use crate::{BootTime, Effect, Error, ErrorKind, Result, telemetry};

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitPolicy {
    /// Until the lock is granted.
    Forever,
    /// Not at all.
    Try,
    /// Until this moment.
    Until(BootTime),
}

/// Attempts of a try whose replies are lost, and of any claim whose grants arrive too late.
const MAX_TRIES: u32 = 3;
/// Shortest timeout of a request to the store, however short the wait for the lock is.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for an acknowledged withdrawal, which turns an unknown outcome into "not acquired".
const MAX_WITHDRAWAL_WAIT: Duration = Duration::from_secs(3);

impl Engine {
    /// Acquires the lock; `None` if it is definitely not held when the wait ends.
    ///
    /// Dropping the future at any point leaves nothing behind: a claim under way goes to a driver
    /// on the keeper, which withdraws it or uses it for the next local waiter.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &ClaimRequest,
        policy: WaitPolicy,
    ) -> Result<Option<LocalHold>> {
        self.check_open()?;
        let started = self.clock.now();
        let span = telemetry::acquire_span(&request.spec.name, self.scheme());
        let outcome = self.acquire_valid(request, policy).instrument(span).await;
        let outcome = outcome.map_err(|error| self.explain(error, &request.spec.name));
        match &outcome {
            Ok(Some(local_hold)) => {
                let waited = local_hold.since().since(started);
                telemetry::acquired(&request.spec.name, local_hold.token(), waited);
            }
            Ok(None) => {
                telemetry::not_acquired(&request.spec.name, self.clock.now().since(started))
            }
            Err(error) => telemetry::failed(&request.spec.name, error),
        }
        outcome
    }

    /// Never returns a hold that was lost before it reached the caller, which may have been paused.
    async fn acquire_valid(
        self: &Arc<Self>,
        request: &ClaimRequest,
        policy: WaitPolicy,
    ) -> Result<Option<LocalHold>> {
        for _ in 0..MAX_TRIES {
            match self.enter_queue(request, policy).await? {
                Some(local_hold) if local_hold.hold().is_valid() => return Ok(Some(local_hold)),
                Some(lost) => drop(lost),
                None => return Ok(None),
            }
            self.check_open()?;
            if !self.has_time(policy) {
                return Ok(None);
            }
        }
        Err(replies_too_late())
    }

    /// Enters the local queue, then claims at the store or waits for a local hand-over.
    async fn enter_queue(
        self: &Arc<Self>,
        request: &ClaimRequest,
        policy: WaitPolicy,
    ) -> Result<Option<LocalHold>> {
        let Some(local_queue) = self.local_queues.for_request(self, request) else {
            return Err(self.closed_error());
        };
        match local_queue.enter(&request.owner, matches!(policy, WaitPolicy::Try)) {
            Entered::Claim(slot) => self.claim_at_store(slot, request, policy).await,
            Entered::Wait(waiting) => self.wait_in_queue(waiting, policy).await,
            Entered::Full => Ok(None),
        }
    }

    /// Sends the claim in the caller's task: the uncontended case needs no driver.
    async fn claim_at_store(
        self: &Arc<Self>,
        slot: Slot,
        request: &ClaimRequest,
        policy: WaitPolicy,
    ) -> Result<Option<LocalHold>> {
        let queue = !matches!(policy, WaitPolicy::Try);
        let local_queue = slot.local_queue().clone();
        let mut attempt =
            Attempt::begin(slot, self.new_claim(&request.spec, &request.owner, queue))?;
        let mut tries = 0;
        loop {
            let sent = self.clock.now();
            attempt.earliest_grant.sending(sent);
            let timeout = self.reply_timeout(policy, sent);
            let unknown_before = std::mem::replace(&mut attempt.outcome_unknown, true);
            let claiming = with_timeout(&self.clock, timeout, self.store.claim(&attempt.claim));
            let Some(reply) = self.unless_closed(claiming).await else {
                return Err(attempt.with_possible_effect(self.closed_error()));
            };
            if matches!(&reply, Some(Err(error)) if !error.may_have_taken_effect()) {
                attempt.outcome_unknown = unknown_before;
            }
            if matches!(reply, Some(Ok(_))) && local_queue.store_error().is_some() {
                local_queue.set_store_error(None);
            }
            let error = match reply {
                Some(Ok(ClaimReply::Granted(grant))) => {
                    return attempt
                        .granted(grant, sent, request.owner.clone())
                        .map(Some);
                }
                Some(Ok(ClaimReply::Queued(queued))) => {
                    let lease = attempt.claim.lease;
                    attempt.earliest_grant.queued(sent, lease, self.clock.now());
                    let waiting = attempt.hand_to_driver(&request.owner, Some(queued));
                    return self.wait_in_queue(waiting, policy).await;
                }
                Some(Ok(ClaimReply::Busy(_))) if unknown_before => {
                    return attempt.withdraw_refused(timeout).await.map(|()| None);
                }
                Some(Ok(ClaimReply::Busy(_))) => {
                    attempt.refused();
                    return Ok(None);
                }
                // Only a repeated request can be gone: it expired between two tries.
                Some(Ok(ClaimReply::Gone(_))) => {
                    // A copy of the earlier request may still be under way. The next reply may end a
                    // try with "not acquired", so a try waits until the withdrawal is acknowledged.
                    match policy {
                        WaitPolicy::Try => attempt.withdraw(timeout).await?,
                        WaitPolicy::Forever | WaitPolicy::Until(_) => {
                            withdraw::withdraw_in_background(self, attempt.claim.clone());
                        }
                    }
                    attempt.new_request()?;
                    continue;
                }
                Some(Err(error)) if !error.is_temporary() => {
                    return Err(attempt.with_possible_effect(error));
                }
                Some(Err(error)) => error,
                None => no_answer(),
            };
            let error = attempt.with_possible_effect(error);
            if queue && self.has_time(policy) {
                local_queue.set_store_error(Some(error));
                let waiting = attempt.hand_to_driver(&request.owner, None);
                return self.wait_in_queue(waiting, policy).await;
            }
            tries += 1;
            if tries >= MAX_TRIES || !self.has_time(policy) {
                return Err(error);
            }
            self.clock.sleep(backoff(tries)).await;
        }
    }

    /// Waits for a grant of a driver or for a local hand-over.
    async fn wait_in_queue(
        self: &Arc<Self>,
        mut waiting: LocalWait,
        policy: WaitPolicy,
    ) -> Result<Option<LocalHold>> {
        let WaitPolicy::Until(deadline) = policy else {
            return waiting.outcome().await.map(Some);
        };
        tokio::select! {
            biased;
            outcome = waiting.outcome() => return outcome.map(Some),
            () = self.clock.sleep_until(deadline) => {}
        }
        let local_queue = waiting.local_queue().clone();
        let end = waiting.give_up();
        // If the store has not been answering, the outcome is unknown while the claim is withdrawn:
        // an error, not "not acquired".
        match (end, local_queue.store_error()) {
            (WaitEnd::Resolved(outcome), _) => outcome.map(Some),
            (_, Some(error)) => Err(error),
            (WaitEnd::Nothing, None) => Ok(None),
            (WaitEnd::Unanswered(withdrawn), None) => {
                let timeout = self.settings.patience.min(MAX_WITHDRAWAL_WAIT);
                match with_timeout(&self.clock, timeout, withdrawn).await {
                    Some(Ok(true)) => Ok(None),
                    _ => Err(no_answer()),
                }
            }
        }
    }

    fn has_time(&self, policy: WaitPolicy) -> bool {
        match policy {
            WaitPolicy::Forever | WaitPolicy::Try => true,
            WaitPolicy::Until(deadline) => self.clock.now() < deadline,
        }
    }

    /// Timeout of one request. If the wait for the *lock* is short, the store still gets time to answer
    /// "no": a definite answer a little late is better than an unknown outcome in time.
    fn reply_timeout(&self, policy: WaitPolicy, now: BootTime) -> Duration {
        let patience = self.settings.patience;
        match policy {
            WaitPolicy::Until(deadline) => patience.min(deadline.since(now).max(MIN_REPLY_TIMEOUT)),
            WaitPolicy::Forever | WaitPolicy::Try => patience,
        }
    }
}

fn no_answer() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the store did not answer the claim in time",
    )
    .with_effect(Effect::Possible)
    .with_advice("check that the store is up (`clinch doctor`)")
}

fn replies_too_late() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "every reply of the store took longer than the lease",
    )
    .with_effect(Effect::Possible)
    .with_advice("choose a longer lease, or a faster store")
}
