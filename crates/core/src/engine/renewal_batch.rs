//! One batch of renewals: the request to the store, and what its replies mean for the holds.

use std::iter::repeat;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::settings::{backoff, renew_after};
use super::{Engine, Hold, with_timeout};
use crate::store::{RenewReply, Renewal};
use crate::{BootTime, Result, telemetry};

/// Sends one batch, in a task on the keeper.
pub(super) fn start(engine: &Arc<Engine>, holds: &[Arc<Hold>]) {
    let mut batch = Vec::with_capacity(holds.len());
    for hold in holds {
        hold.check_deadline();
        match hold.deadline() {
            // Lost or released.
            None => {}
            // A renewal cannot extend it beyond `max_hold`. Only its deadline is left to check, unless it
            // is suspect: then only a renewal shows whether it is still held.
            Some(deadline) if hold.at_max_hold() && !hold.is_suspect() => {
                engine.renewer.schedule_at(hold, deadline);
            }
            Some(_) => batch.push(hold.clone()),
        }
    }
    if batch.is_empty() {
        return;
    }
    let span = telemetry::renew_span(engine.scheme(), batch.len());
    let renewing = renew(engine.clone(), batch).instrument(span);
    if let Err(error) = engine.tasks.spawn(renewing) {
        tracing::error!(%error, "holds cannot be renewed");
    }
}

async fn renew(engine: Arc<Engine>, batch: Vec<Arc<Hold>>) {
    let renewals: Vec<Renewal> = batch
        .iter()
        .map(|hold| Renewal {
            hold: hold.store_hold.clone(),
            lease: hold.lease,
            value: None,
        })
        .collect();
    // The next renewal is due after a third of the lease; this one has timed out by then.
    let timeout = batch
        .iter()
        .map(|hold| renew_after(hold.lease))
        .min()
        .unwrap_or_default();
    let sent = engine.clock.now();
    let reply = with_timeout(&engine.clock, timeout, engine.store.renew(&renewals)).await;
    apply_replies(&engine, &batch, sent, reply);
}

fn apply_replies(
    engine: &Engine,
    batch: &[Arc<Hold>],
    sent: BootTime,
    reply: Option<Result<Vec<RenewReply>>>,
) {
    let shortest = batch.iter().map(|hold| hold.lease).min();
    let pause = retry_after(shortest.unwrap_or_default());
    let again = engine.clock.now() + pause;
    let replies = match reply {
        Some(Ok(replies)) => replies,
        failed => {
            if let Some(Err(error)) = failed {
                tracing::warn!(%error, holds = batch.len(), "renewal failed");
            } else {
                tracing::warn!(holds = batch.len(), "renewal was not answered");
            }
            // Bisects the batch: if one hold makes it fail, that hold is soon in a batch of its own.
            let (first, second) = batch.split_at(batch.len().div_ceil(2));
            for (half, again) in [(first, again), (second, again + pause / 2)] {
                half.iter()
                    .for_each(|hold| renewal_failed(engine, hold, again));
            }
            return;
        }
    };
    // A missing reply counts as unknown.
    let replies = replies.into_iter().chain(repeat(RenewReply::Unknown));
    for (hold, reply) in batch.iter().zip(replies) {
        match reply {
            RenewReply::Held if hold.extend(sent) => {
                telemetry::renewed(&hold.store_hold.name);
                engine
                    .renewer
                    .schedule_at(hold, sent + renew_after(hold.lease));
            }
            RenewReply::Held => {}
            RenewReply::Lost(reason) => {
                hold.lose(reason);
            }
            RenewReply::Unknown => renewal_failed(engine, hold, again),
        }
    }
}

/// The renewal failed or was not answered: the hold is suspect, and renewed again at `again`.
pub(super) fn renewal_failed(engine: &Engine, hold: &Arc<Hold>, again: BootTime) {
    hold.mark_suspect();
    telemetry::renewal_failed();
    engine.renewer.schedule_at(hold, again);
}

/// Delay after a failed renewal: much shorter than the lease, so that several tries fit in.
pub(super) fn retry_after(lease: Duration) -> Duration {
    (lease / 24).min(backoff(4))
}
