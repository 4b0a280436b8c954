//! Renewals at the store, and what their replies mean for the holds.

use std::iter::repeat;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::settings::{backoff, renew_after};
use super::{Engine, Hold, patient};
use crate::store::{RenewReply, Renewal};
use crate::{BootTime, Result, telemetry};

/// Sends one batch.
pub(super) fn start(engine: &Arc<Engine>, holds: &[Arc<Hold>]) {
    let mut batch = Vec::with_capacity(holds.len());
    for hold in holds {
        hold.check_deadline();
        match hold.deadline() {
            // Lost or given up.
            None => {}
            // Its longest time is all that it will get: only the deadline is left to wait for,
            // unless there is a doubt that only a renewal can settle.
            Some(deadline) if hold.is_capped() && !hold.is_suspect() => {
                engine.renewer.put(hold, deadline);
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
            hold: hold.spi.clone(),
            lease: hold.lease,
            value: None,
        })
        .collect();
    // The next try is due after a third of the lease; by then this one has been given up.
    let patience = batch
        .iter()
        .map(|hold| renew_after(hold.lease))
        .min()
        .unwrap_or_default();
    let sent = engine.clock.now();
    let reply = patient(&engine.clock, patience, engine.store.renew(&renewals)).await;
    settle(&engine, &batch, sent, reply);
}

fn settle(
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
            // Halved, so that what makes a batch fail is soon in a batch without the others.
            let (first, second) = batch.split_at(batch.len().div_ceil(2));
            for (half, again) in [(first, again), (second, again + pause / 2)] {
                half.iter().for_each(|hold| unrenewed(engine, hold, again));
            }
            return;
        }
    };
    // A reply that is missing is as good as none.
    let replies = replies.into_iter().chain(repeat(RenewReply::Unknown));
    for (hold, reply) in batch.iter().zip(replies) {
        match reply {
            RenewReply::Held if hold.extend(sent) => {
                telemetry::renewed(&hold.spi.name);
                engine.renewer.put(hold, sent + renew_after(hold.lease));
            }
            RenewReply::Held => {}
            RenewReply::Lost(reason) => {
                hold.lose(reason);
            }
            RenewReply::Unknown => unrenewed(engine, hold, again),
        }
    }
}

/// A renewal that failed or was not answered: the hold is in doubt until the next one is.
pub(super) fn unrenewed(engine: &Engine, hold: &Arc<Hold>, again: BootTime) {
    hold.suspect();
    telemetry::renewal_failed();
    engine.renewer.put(hold, again);
}

/// The pause after a failed renewal: short against the lease, so that several tries fit in.
pub(super) fn retry_after(lease: Duration) -> Duration {
    (lease / 24).min(backoff(4))
}
