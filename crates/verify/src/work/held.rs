//! A guard whose looks and release are recorded.

use std::sync::Arc;
use std::time::Duration;

use clinch::{Guard, ReleaseReply, Result};

use super::client::{Shared, describe};
use crate::history::{Event, Look, Lost, Outcome, Release, now};

/// Something that was granted.
#[derive(Debug)]
pub(crate) struct Held {
    shared: Arc<Shared>,
    pub(crate) op: u64,
    pub(crate) guard: Guard,
}

impl Held {
    pub(crate) fn new(shared: Arc<Shared>, op: u64, guard: Guard) -> Self {
        Self { shared, op, guard }
    }

    /// Gives the guard away for as long as something is done with it.
    pub(crate) fn lend<T>(self, act: impl FnOnce(Guard) -> (Guard, T)) -> (Self, T) {
        let (guard, output) = act(self.guard);
        (Self { guard, ..self }, output)
    }

    /// Whether it is valid now, which is recorded.
    pub(crate) fn look(&self) -> bool {
        let at = now();
        let valid = self.guard.is_valid();
        let look = Look {
            op: self.op,
            at,
            valid,
        };
        self.shared.recorder.write(&Event::Look(look));
        valid
    }

    /// Keeps it for a time, looking now and then; `false` when it was lost meanwhile. Ends early
    /// when the worker is told to stop.
    pub(crate) async fn keep(&self, span: Duration) -> bool {
        let clock = &self.shared.clock;
        let end = clock.now() + span;
        let step = self.shared.config.lease() / 8;
        loop {
            let left = end.since(clock.now());
            if left.is_zero() || self.shared.stopped() {
                return true;
            }
            tokio::select! {
                biased;
                reason = self.guard.lost() => {
                    self.lost(reason.as_str());
                    self.look();
                    return false;
                }
                () = clock.sleep(left.min(step)) => {
                    if span > step {
                        self.look();
                    }
                }
            }
        }
    }

    fn lost(&self, reason: &str) {
        self.shared.count_loss();
        self.shared.recorder.write(&Event::Lost(Lost {
            op: self.op,
            at: now(),
            reason: reason.to_owned(),
        }));
    }

    /// Releases it and waits for that.
    pub(crate) async fn release(self) {
        let (shared, op) = (self.shared, self.op);
        let invoke = now();
        let valid = self.guard.is_valid();
        let outcome = self.guard.release().await;
        released(&shared, op, invoke, valid, outcome.map(Some));
    }

    /// Drops it: it is released in the background.
    pub(crate) fn abandon(self) {
        let invoke = now();
        let valid = self.guard.is_valid();
        drop(self.guard);
        released(&self.shared, self.op, invoke, valid, Ok(None));
    }
}

/// Records a release; without a reply nobody waited for it.
pub(crate) fn released(
    shared: &Shared,
    op: u64,
    invoke: u64,
    valid: bool,
    reply: Result<Option<ReleaseReply>>,
) {
    let reason = match &reply {
        Ok(Some(ReleaseReply::WasLost(reason))) => Some(reason.as_str().to_owned()),
        _ => None,
    };
    let (outcome, error) = match reply {
        Ok(Some(reply)) if reply.was_held() => (Outcome::Ok, None),
        Ok(Some(_)) => (Outcome::Fail, None),
        Ok(None) => (Outcome::Info, None),
        Err(error) => (Outcome::Info, Some(describe(&error))),
    };
    shared.count_operation();
    shared.recorder.write(&Event::Release(Release {
        op,
        invoke,
        complete: now(),
        outcome,
        valid,
        reason,
        error,
    }));
}
