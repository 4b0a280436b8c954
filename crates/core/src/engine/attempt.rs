//! A claim that a caller makes in its own task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::grant_bound::EarliestGrant;
use super::local_wait::LocalWait;
use super::slot::Slot;
use super::{Hold, LocalHold, LocalQueue, driver, with_timeout, withdraw};
use crate::store::{Claim, Grant, Queued};
use crate::{BootTime, Effect, Error, ErrorKind, OwnerId, Result};

pub(super) struct Attempt {
    local_queue: Arc<LocalQueue>,
    slot: Option<Slot>,
    pub(super) claim: Arc<Claim>,
    /// Whether a request may have taken effect at the store without a reply.
    pub(super) outcome_unknown: bool,
    pub(super) earliest_grant: EarliestGrant,
}

impl Attempt {
    /// Registers the claim; an error if the client has been closed.
    pub(super) fn begin(slot: Slot, claim: Claim) -> Result<Self> {
        let (local_queue, claim) = (slot.local_queue().clone(), Arc::new(claim));
        if !local_queue.engine().open_claims.register(&claim) {
            return Err(local_queue.engine().closed_error());
        }
        Ok(Self {
            local_queue,
            slot: Some(slot),
            claim,
            outcome_unknown: false,
            earliest_grant: EarliestGrant::default(),
        })
    }

    /// The request has ended at the store: continues with a fresh request id.
    pub(super) fn new_request(&mut self) -> Result<()> {
        let engine = self.local_queue.engine();
        let claim = Arc::new(Claim {
            request: engine.identity.request(),
            ..Claim::clone(&self.claim)
        });
        engine.open_claims.remove(self.claim.request);
        self.outcome_unknown = false;
        self.earliest_grant = EarliestGrant::default();
        if !engine.open_claims.register(&claim) {
            return Err(engine.closed_error());
        }
        self.claim = claim;
        Ok(())
    }

    /// The store has granted the request that was sent at `sent`.
    pub(super) fn granted(
        &mut self,
        grant: Grant,
        sent: BootTime,
        owner: OwnerId,
    ) -> Result<LocalHold> {
        let Some(slot) = self.slot.take() else {
            return Err(Error::new(ErrorKind::Internal, "a claim without a slot"));
        };
        let hold = Hold::new(slot, &self.claim, grant, sent);
        Ok(LocalHold::first(hold, owner))
    }

    /// The store has refused the claim, and no earlier request is unanswered.
    pub(super) fn refused(&mut self) {
        self.slot = None;
    }

    /// The store has refused the claim, but an earlier request is unanswered and may still arrive. The
    /// outcome is "not acquired" only once the store has acknowledged the withdrawal.
    pub(super) async fn withdraw_refused(mut self, timeout: Duration) -> Result<()> {
        // Frees the slot at once: the next claim of this process has another request id.
        self.slot = None;
        self.withdraw(timeout).await
    }

    /// Withdraws the claim and waits for the acknowledgement. If the caller is dropped, the withdrawal
    /// continues in the background.
    pub(super) async fn withdraw(&self, timeout: Duration) -> Result<()> {
        let (engine, claim) = (self.local_queue.engine().clone(), self.claim.clone());
        let clock = engine.clock.clone();
        let (sender, receiver) = oneshot::channel();
        let withdrawing = async move {
            let withdrawn = withdraw::withdraw(&engine, &claim).await;
            // Fails if the caller was dropped.
            let _ = sender.send(withdrawn);
        };
        let possible = |error: Error| error.with_effect(Effect::Possible);
        let spawned = self.local_queue.engine().tasks.spawn(withdrawing);
        spawned.map_err(possible)?;
        match with_timeout(&clock, timeout, receiver).await {
            Some(Ok(true)) => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Unreachable,
                "the lock is taken, but an earlier request was not answered, and the store has not \
                 acknowledged its withdrawal",
            )
            .with_effect(Effect::Possible)
            .with_advice("check that the store is up (`clinch doctor`)")),
        }
    }

    /// Marks the error if an earlier request may have taken effect.
    pub(super) fn with_possible_effect(&self, error: Error) -> Error {
        match self.outcome_unknown {
            true => error.with_effect(Effect::Possible),
            false => error,
        }
    }

    pub(super) fn hand_to_driver(&mut self, owner: &OwnerId, queued: Option<Queued>) -> LocalWait {
        let waiting = self.local_queue.wait_at_head(owner);
        self.start_driver(queued);
        waiting
    }

    fn start_driver(&mut self, queued: Option<Queued>) {
        if let Some(slot) = self.slot.take() {
            let claim = Claim::clone(&self.claim);
            driver::start(
                slot,
                claim,
                self.earliest_grant,
                self.outcome_unknown,
                queued,
            );
        }
    }
}

impl Drop for Attempt {
    /// If the outcome is unknown when the caller is dropped or gives up, a driver takes the claim over.
    fn drop(&mut self) {
        if !self.local_queue.engine().is_own_process() {
            return;
        }
        if self.outcome_unknown && self.slot.is_some() {
            self.local_queue.add_driver();
            self.start_driver(None);
        }
        // After the driver has started: `close` finds the claim here or waits for the driver.
        self.local_queue
            .engine()
            .open_claims
            .remove(self.claim.request);
    }
}
