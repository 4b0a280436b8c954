//! A claim under way in the caller's task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::heard::Heard;
use super::lane::{Slot, Waiting};
use super::{Hold, Lane, Tenure, drive, patient};
use crate::store::{Claim, Grant, Queued};
use crate::{BootTime, Effect, Error, ErrorKind, OwnerId, Result};

pub(super) struct Attempt {
    lane: Arc<Lane>,
    slot: Option<Slot>,
    pub(super) claim: Arc<Claim>,
    /// Whether a request may have reached the store whose outcome is not known.
    pub(super) unknown: bool,
    pub(super) heard: Heard,
}

impl Attempt {
    /// Begins a claim, unless the client has been closed.
    pub(super) fn begin(slot: Slot, claim: Claim) -> Result<Self> {
        let (lane, claim) = (slot.lane().clone(), Arc::new(claim));
        if !lane.engine().open.enter(&claim) {
            return Err(lane.engine().closed_error());
        }
        Ok(Self {
            lane,
            slot: Some(slot),
            claim,
            unknown: false,
            heard: Heard::default(),
        })
    }

    /// The request has ended at the store: goes on with a new one, of which nothing is known.
    pub(super) fn renew_request(&mut self) -> Result<()> {
        let engine = self.lane.engine();
        let claim = Arc::new(Claim {
            request: engine.identity.request(),
            ..Claim::clone(&self.claim)
        });
        engine.open.leave(self.claim.request);
        self.unknown = false;
        self.heard = Heard::default();
        if !engine.open.enter(&claim) {
            return Err(engine.closed_error());
        }
        self.claim = claim;
        Ok(())
    }

    /// The store has granted what was sent at `sent`.
    pub(super) fn granted(
        &mut self,
        grant: Grant,
        sent: BootTime,
        owner: OwnerId,
    ) -> Result<Tenure> {
        let Some(slot) = self.slot.take() else {
            return Err(Error::new(ErrorKind::Internal, "a claim lost its place"));
        };
        let hold = Hold::new(slot, &self.claim, grant, sent);
        Ok(Tenure::first(hold, owner))
    }

    /// The store has said no: nothing is left of the claim.
    pub(super) fn settle(&mut self) {
        self.slot = None;
    }

    /// The store has said no, but an earlier request has not been answered and may arrive yet. That
    /// is "not acquired" only once the store has acknowledged the withdrawal, which goes on if the
    /// caller leaves.
    pub(super) async fn settle_unknown(mut self, patience: Duration) -> Result<()> {
        // The lane is free at once: another claim of this process has another request id.
        self.slot = None;
        self.withdrawn(patience).await
    }

    /// Withdraws the claim, and waits until the store has acknowledged that. Goes on if the caller leaves.
    pub(super) async fn withdrawn(&self, patience: Duration) -> Result<()> {
        let (engine, claim) = (self.lane.engine().clone(), self.claim.clone());
        let clock = engine.clock.clone();
        let (tell, told) = oneshot::channel();
        let withdrawing = async move {
            let withdrawn = drive::withdraw(&engine, &claim).await;
            // The caller may have left.
            let _ = tell.send(withdrawn);
        };
        let possible = |error: Error| error.with_effect(Effect::Possible);
        let spawned = self.lane.engine().tasks.spawn(withdrawing);
        spawned.map_err(possible)?;
        match patient(&clock, patience, told).await {
            Some(Ok(true)) => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Unreachable,
                "it is taken, but an earlier request was not answered, and the store has not \
                 acknowledged its withdrawal",
            )
            .with_effect(Effect::Possible)
            .with_advice("check that the store is up (`clinch doctor`)")),
        }
    }

    /// The error with what earlier requests may have done.
    pub(super) fn explain(&self, error: Error) -> Error {
        match self.unknown {
            true => error.with_effect(Effect::Possible),
            false => error,
        }
    }

    pub(super) fn hand_to_driver(&mut self, owner: &OwnerId, queued: Option<Queued>) -> Waiting {
        let waiting = self.lane.wait_first(owner);
        self.start_driver(queued);
        waiting
    }

    fn start_driver(&mut self, queued: Option<Queued>) {
        if let Some(slot) = self.slot.take() {
            let claim = Claim::clone(&self.claim);
            drive::start(slot, claim, self.heard, self.unknown, queued);
        }
    }
}

impl Drop for Attempt {
    /// The caller has gone, or gave up, with the outcome unknown.
    fn drop(&mut self) {
        if !self.lane.engine().is_ours() {
            return;
        }
        if self.unknown && self.slot.is_some() {
            self.lane.adopt();
            self.start_driver(None);
        }
        // After a driver has it, so that `close` finds it here or waits for the driver.
        self.lane.engine().open.leave(self.claim.request);
    }
}
