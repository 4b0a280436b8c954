//! From a wish to a tenure.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::attempt::Attempt;
use super::lane::{End, Entered, Slot, Waiting};
use super::settings::backoff;
use super::{Ask, Engine, Tenure, drive, patient, valid_for};
use crate::store::ClaimReply;
use crate::{BootTime, Effect, Error, ErrorKind, Result, telemetry};

/// How long a caller is ready to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    /// Until it is granted.
    Wait,
    /// Not at all.
    Try,
    /// Until this moment.
    Until(BootTime),
}

/// How often a try repeats a request whose reply was lost, and any claim a grant that came too late.
const TRIES: u32 = 3;
/// The time that a store has at least to answer a request, however short the wait for the lock.
const REPLY: Duration = Duration::from_secs(1);
/// The time that it has to acknowledge a withdrawal, so that the caller can be told no.
const WITHDRAWAL: Duration = Duration::from_secs(3);

impl Engine {
    /// Claims as asked; `None` when it is definitely not held within the time.
    ///
    /// Dropping the future at any point leaves nothing behind: a claim under way goes to a driver
    /// on the keeper, which withdraws it or uses it for the next local waiter.
    pub(crate) async fn acquire(self: &Arc<Self>, ask: &Ask, how: How) -> Result<Option<Tenure>> {
        self.check_open()?;
        let asked = self.clock.now();
        let span = telemetry::acquire_span(&ask.key.name, self.scheme());
        let outcome = self.get_valid(ask, how).instrument(span).await;
        let outcome = outcome.map_err(|error| self.explain(error, &ask.key.name));
        match &outcome {
            Ok(Some(tenure)) => {
                let waited = tenure.since().since(asked);
                telemetry::acquired(&ask.key.name, tenure.token(), waited);
            }
            Ok(None) => telemetry::not_acquired(&ask.key.name, self.clock.now().since(asked)),
            Err(error) => telemetry::failed(&ask.key.name, error),
        }
        outcome
    }

    /// Never returns what was lost on its way to the caller, who may have been paused meanwhile.
    async fn get_valid(self: &Arc<Self>, ask: &Ask, how: How) -> Result<Option<Tenure>> {
        for _ in 0..TRIES {
            match self.enter(ask, how).await? {
                Some(tenure) if tenure.hold().is_valid() => return Ok(Some(tenure)),
                Some(lost) => drop(lost),
                None => return Ok(None),
            }
            self.check_open()?;
            if !self.has_time(how) {
                return Ok(None);
            }
        }
        Err(late())
    }

    async fn enter(self: &Arc<Self>, ask: &Ask, how: How) -> Result<Option<Tenure>> {
        let Some(lane) = self.lanes.of(self, ask) else {
            return Err(self.closed_error());
        };
        match lane.enter(&ask.owner, matches!(how, How::Try)) {
            Entered::First(slot) => self.first(slot, ask, how).await,
            Entered::Waiting(waiting) => self.wait(waiting, how).await,
            Entered::Full => Ok(None),
        }
    }

    /// Claims at the store, in the caller's task.
    async fn first(self: &Arc<Self>, slot: Slot, ask: &Ask, how: How) -> Result<Option<Tenure>> {
        let queue = !matches!(how, How::Try);
        let lane = slot.lane().clone();
        let mut attempt = Attempt::begin(slot, self.claim(&ask.key, &ask.owner, queue))?;
        let mut tries = 0;
        loop {
            let sent = self.clock.now();
            attempt.heard.sending(sent);
            let patience = self.patience(how, sent);
            let before = std::mem::replace(&mut attempt.unknown, true);
            let claiming = patient(&self.clock, patience, self.store.claim(&attempt.claim));
            let Some(reply) = self.unless_closed(claiming).await else {
                return Err(attempt.explain(self.closed_error()));
            };
            if matches!(&reply, Some(Err(error)) if !error.may_have_taken_effect()) {
                attempt.unknown = before;
            }
            if matches!(reply, Some(Ok(_))) && lane.trouble().is_some() {
                lane.set_trouble(None);
            }
            let error = match reply {
                Some(Ok(ClaimReply::Granted(grant))) => {
                    return attempt.granted(grant, sent, ask.owner.clone()).map(Some);
                }
                Some(Ok(ClaimReply::Queued(queued))) => {
                    let lease = attempt.claim.lease;
                    attempt.heard.queued(sent, lease, self.clock.now());
                    let waiting = attempt.hand_to_driver(&ask.owner, Some(queued));
                    return self.wait(waiting, how).await;
                }
                Some(Ok(ClaimReply::Busy(_))) if before => {
                    return attempt.settle_unknown(patience).await.map(|()| None);
                }
                Some(Ok(ClaimReply::Busy(_))) => {
                    attempt.settle();
                    return Ok(None);
                }
                // Only a repeated request can be gone: it ran out between two tries.
                Some(Ok(ClaimReply::Gone(_))) => {
                    // The earlier try may still be under way: see the driver. A try can be told no by
                    // the next answer, so it waits for the acknowledgement.
                    match how {
                        How::Try => attempt.withdrawn(patience).await?,
                        How::Wait | How::Until(_) => {
                            drive::withdraw_in_background(self, attempt.claim.clone());
                        }
                    }
                    attempt.renew_request()?;
                    continue;
                }
                Some(Err(error)) if !error.is_temporary() => return Err(attempt.explain(error)),
                Some(Err(error)) => error,
                None => unanswered(),
            };
            let error = attempt.explain(error);
            if queue && self.has_time(how) {
                lane.set_trouble(Some(error));
                let waiting = attempt.hand_to_driver(&ask.owner, None);
                return self.wait(waiting, how).await;
            }
            tries += 1;
            if tries >= TRIES || !self.has_time(how) {
                return Err(error);
            }
            self.clock.sleep(backoff(tries)).await;
        }
    }

    /// Waits in the lane.
    async fn wait(self: &Arc<Self>, mut waiting: Waiting, how: How) -> Result<Option<Tenure>> {
        let How::Until(deadline) = how else {
            return waiting.told().await.map(Some);
        };
        tokio::select! {
            biased;
            outcome = waiting.told() => return outcome.map(Some),
            () = self.clock.sleep_until(deadline) => {}
        }
        let lane = waiting.lane().clone();
        let end = waiting.end();
        // The store has not been answering: whether we hold it is not known, and being withdrawn. That
        // is not the same as "no".
        match (end, lane.trouble()) {
            (End::Told(outcome), _) => outcome.map(Some),
            (_, Some(trouble)) => Err(trouble),
            (End::Nothing, None) => Ok(None),
            (End::Unanswered(withdrawn), None) => {
                let patience = self.settings.patience.min(WITHDRAWAL);
                match patient(&self.clock, patience, withdrawn).await {
                    Some(Ok(true)) => Ok(None),
                    _ => Err(unanswered()),
                }
            }
        }
    }

    fn has_time(&self, how: How) -> bool {
        match how {
            How::Wait | How::Try => true,
            How::Until(deadline) => self.clock.now() < deadline,
        }
    }

    /// For how long to wait for the reply to one request. A short wait for the *lock* still leaves
    /// the store time to say no: a caller would rather hear that late than "unknown" in time.
    fn patience(&self, how: How, now: BootTime) -> Duration {
        let patience = self.settings.patience;
        match how {
            How::Until(deadline) => patience.min(deadline.since(now).max(REPLY)),
            How::Wait | How::Try => patience,
        }
    }
}

fn unanswered() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the store did not answer the claim in time",
    )
    .with_effect(Effect::Possible)
    .with_advice("check that the store is up (`clinch doctor`)")
}

fn late() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "every answer of the store took longer than the lease",
    )
    .with_effect(Effect::Possible)
    .with_advice("choose a longer lease, or a faster store")
}

/// Whether a grant that was last heard of at `sent` is worth anything at `now`.
pub(super) fn still_valid(sent: BootTime, lease: Duration, now: BootTime) -> bool {
    now < sent + valid_for(lease)
}
