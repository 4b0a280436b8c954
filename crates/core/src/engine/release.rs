//! Release: the hold passes to the next local waiter, or goes back to the store.

use std::sync::Arc;

use super::hold::Phase;
use super::settings::{backoff, retry_for};
use super::{Hold, LocalHold, valid_for, with_timeout};
use crate::store::ReleaseReply;
use crate::{BootTime, Effect, Error, ErrorKind, LostReason, Result, telemetry};

/// What became of a hold after its holder has released it.
enum AfterUse {
    /// Another task of this process has the hold.
    HandedOver,
    /// It had been lost before.
    Lost(LostReason),
    /// It was valid until now and must be released at the store.
    ToRelease,
}

/// Releases a hold and waits for the store's reply.
pub(super) async fn release(local_hold: &LocalHold, now: BootTime) -> Result<ReleaseReply> {
    let hold = local_hold.hold();
    match hand_over_or_release(local_hold, now) {
        AfterUse::HandedOver => Ok(ReleaseReply::Released),
        AfterUse::Lost(reason) => {
            // The store may not have ended it yet.
            release_in_background(hold.clone());
            Ok(ReleaseReply::WasLost(reason))
        }
        AfterUse::ToRelease => {
            // If this future is dropped at the await, the release continues on the keeper.
            let mut on_drop = ReleaseOnDrop(Some(hold.clone()));
            let reply = release_with_retries(hold).await;
            if reply.is_ok() {
                on_drop.0 = None;
            }
            reply.map_err(|error| hold.engine.explain(error, &hold.store_hold.name))
        }
    }
}

/// Releases a hold without waiting for the store.
pub(super) fn release_without_waiting(local_hold: &LocalHold, now: BootTime) {
    match hand_over_or_release(local_hold, now) {
        // `close` has released it.
        AfterUse::HandedOver | AfterUse::Lost(LostReason::Closed) => {}
        AfterUse::Lost(_) | AfterUse::ToRelease => release_in_background(local_hold.hold().clone()),
    }
}

/// Marks a hold lost and releases it, because its client has been closed.
pub(super) fn lose_closed(hold: &Arc<Hold>) {
    if hold.lose(LostReason::Closed) {
        release_in_background(hold.clone());
    }
}

/// Releases a hold at the store from a task on the keeper, which outlives the caller.
pub(super) fn release_in_background(hold: Arc<Hold>) {
    let engine = hold.engine.clone();
    let spawned = engine.tasks.spawn(async move {
        let Err(error) = release_until_acknowledged(&hold).await else {
            return;
        };
        let lock = &hold.store_hold.name;
        if error.kind() == ErrorKind::Closed {
            // The session has ended, and with it every hold.
            tracing::debug!(%error, %lock, "a hold ended with its session");
        } else if error.may_have_taken_effect() {
            tracing::warn!(%error, %lock, "a hold expires, unless it has been released");
        } else {
            tracing::warn!(%error, %lock, "a hold expires instead of being released");
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "a hold expires instead of being released");
    }
}

fn hand_over_or_release(local_hold: &LocalHold, now: BootTime) -> AfterUse {
    let hold = local_hold.hold();
    if may_hand_over(local_hold, now)
        && hold
            .local_queue()
            .is_some_and(|local_queue| local_queue.hand_over(local_hold, now))
    {
        telemetry::handed_over(&hold.store_hold.name);
        return AfterUse::HandedOver;
    }
    match hold.begin_release() {
        Ok(()) => AfterUse::ToRelease,
        Err(reason) => AfterUse::Lost(reason),
    }
}

/// Whether the hold may pass to a local waiter: it is valid and within the bounds of
/// [`HandOver`](super::HandOver). A hold of a part of the units must not: another client may hold the
/// rest with a greater token, and the token of the next local holder would be smaller than that.
fn may_hand_over(local_hold: &LocalHold, now: BootTime) -> bool {
    let hold = local_hold.hold();
    let bounds = hold.engine.settings.hand_over;
    let max_hand_overs = u64::from(bounds.count).min(crate::token::MAX_LOCAL);
    local_hold.local() < max_hand_overs
        && hold.units == hold.limit
        && !local_hold.sequencer_was_taken()
        && now.since(hold.granted_at) < bounds.time
        && hold.is_valid_at(now)
}

/// Releases in the caller's task; retries until `Settings::patience` or the lease is over.
async fn release_with_retries(hold: &Arc<Hold>) -> Result<ReleaseReply> {
    let engine = &hold.engine;
    let give_up = engine.clock.now() + engine.settings.patience.min(hold.lease);
    let mut tries = 0;
    // Whether an earlier try may have taken effect.
    let mut earlier = Effect::None;
    loop {
        match release_once(hold).await {
            Ok(reply) => return Ok(interpret(reply, earlier)),
            Err(error) => {
                if error.may_have_taken_effect() {
                    earlier = Effect::Possible;
                }
                if !error.is_temporary() || engine.clock.now() >= give_up {
                    return Err(error.with_effect(earlier));
                }
            }
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}

/// What the reply to a release means if an earlier try may have taken effect.
///
/// The hold was valid when the first try was sent. If the reply is:
/// - expired: it expired after that, so nothing was lost.
/// - forgotten: the store may have forgotten it *because* an earlier try has released it.
/// - released: only an earlier try can have done that.
/// - evicted: a loss. Only a hold that no try has released can be evicted, perhaps long before.
fn interpret(reply: ReleaseReply, earlier: Effect) -> ReleaseReply {
    match reply {
        ReleaseReply::WasLost(
            LostReason::Expired | LostReason::Forgotten | LostReason::Released,
        ) if earlier == Effect::Possible => ReleaseReply::Released,
        definite => definite,
    }
}

/// Retries until the store has replied, or until the hold must have expired there.
async fn release_until_acknowledged(hold: &Arc<Hold>) -> Result<()> {
    let engine = &hold.engine;
    let give_up = engine.clock.now() + retry_for(hold.lease);
    let mut tries = 0;
    let mut effect = Effect::None;
    loop {
        let error = match release_once(hold).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if error.may_have_taken_effect() {
            effect = Effect::Possible;
        }
        if !error.is_temporary() || engine.clock.now() >= give_up {
            hold.finish_release();
            return Err(error.with_effect(effect));
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}

async fn release_once(hold: &Arc<Hold>) -> Result<ReleaseReply> {
    let engine = &hold.engine;
    let timeout = valid_for(hold.lease).min(engine.settings.patience);
    let reply = with_timeout(
        &engine.clock,
        timeout,
        engine.store.release(&hold.store_hold),
    )
    .await;
    match reply {
        Some(Ok(reply)) => {
            hold.finish_release();
            Ok(reply)
        }
        Some(Err(error)) => Err(error),
        None => Err(Error::new(
            ErrorKind::Unreachable,
            "the store did not answer the release",
        )
        .with_effect(Effect::Possible)),
    }
}

/// Continues an unfinished release in the background if its caller is dropped.
struct ReleaseOnDrop(Option<Arc<Hold>>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some(hold) = self
            .0
            .take()
            .filter(|hold| hold.phase() == Phase::Releasing)
        {
            release_in_background(hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_may_have_taken_effect_is_not_a_loss() {
        use LostReason::{Evicted, Expired, Forgotten, Released};
        let lost = [Evicted, Expired, Forgotten, Released].map(ReleaseReply::WasLost);
        // A first reply is definite.
        assert_eq!(lost.map(|reply| interpret(reply, Effect::None)), lost);
        let held = lost.map(|reply| interpret(reply, Effect::Possible).was_held());
        assert_eq!(held, [false, true, true, true]);
        assert!(interpret(ReleaseReply::Released, Effect::Possible).was_held());
    }
}
