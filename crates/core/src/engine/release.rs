//! The end of a tenure: the hold passes to the next local waiter, or goes back to the store.

use std::sync::Arc;

use super::hold::Phase;
use super::settings::{backoff, insist_for};
use super::{Hold, Tenure, patient, valid_for};
use crate::store::ReleaseReply;
use crate::{BootTime, Effect, Error, ErrorKind, LostReason, Result, telemetry};

/// What is left to do after a tenure has ended.
enum Left {
    /// Another task of this process has the hold.
    HandedOver,
    /// It had been lost.
    Lost(LostReason),
    /// It is to be released at the store; it was valid until this moment.
    ToRelease,
}

/// Gives a tenure up and waits for the store's word.
pub(super) async fn release(tenure: &Tenure, now: BootTime) -> Result<ReleaseReply> {
    let hold = tenure.hold();
    match step_down(tenure, now) {
        Left::HandedOver => Ok(ReleaseReply::Released),
        Left::Lost(reason) => {
            // It may still stand at the store for a moment; it must not stand there longer.
            release_in_background(hold.clone());
            Ok(ReleaseReply::WasLost(reason))
        }
        Left::ToRelease => {
            // If this future is dropped at the await, the keeper finishes the work.
            let mut unfinished = Unfinished(Some(hold.clone()));
            let reply = release_at_store(hold).await;
            if reply.is_ok() {
                unfinished.0 = None;
            }
            reply.map_err(|error| hold.engine.explain(error, &hold.spi.name))
        }
    }
}

/// Gives a tenure up without waiting.
pub(super) fn leave(tenure: &Tenure, now: BootTime) {
    match step_down(tenure, now) {
        // A closing client has released everything.
        Left::HandedOver | Left::Lost(LostReason::Closed) => {}
        Left::Lost(_) | Left::ToRelease => release_in_background(tenure.hold().clone()),
    }
}

/// Ends a hold whose client has been closed.
pub(super) fn end_closed(hold: &Arc<Hold>) {
    if hold.lose(LostReason::Closed) {
        release_in_background(hold.clone());
    }
}

/// Makes sure that the store hears of the end, however long the caller lives.
pub(super) fn release_in_background(hold: Arc<Hold>) {
    let engine = hold.engine.clone();
    let spawned = engine.tasks.spawn(async move {
        let Err(error) = persist(&hold).await else {
            return;
        };
        let lock = &hold.spi.name;
        if error.kind() == ErrorKind::Closed {
            // The session has ended, and with it every hold.
            tracing::debug!(%error, %lock, "a hold ended with its session");
        } else if error.may_have_taken_effect() {
            tracing::warn!(%error, %lock, "a hold runs out, unless it has been released");
        } else {
            tracing::warn!(%error, %lock, "a hold runs out instead of being released");
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "a hold runs out instead of being released");
    }
}

fn step_down(tenure: &Tenure, now: BootTime) -> Left {
    let hold = tenure.hold();
    if may_hand_over(tenure, now) && hold.lane().is_some_and(|lane| lane.hand_over(tenure, now)) {
        telemetry::handed_over(&hold.spi.name);
        return Left::HandedOver;
    }
    match hold.begin_leaving() {
        Ok(()) => Left::ToRelease,
        Err(reason) => Left::Lost(reason),
    }
}

/// Whether the hold may stay in this process: within its bounds, and surely still ours. A hold that
/// leaves room for others may not: its next token would be smaller than theirs, though they were
/// granted before.
fn may_hand_over(tenure: &Tenure, now: BootTime) -> bool {
    let hold = tenure.hold();
    let bounds = hold.engine.settings.hand_over;
    let turns = u64::from(bounds.count).min(crate::token::MAX_LOCAL);
    tenure.local() < turns
        && hold.units == hold.limit
        && !tenure.sequencer_was_taken()
        && now.since(hold.granted) < bounds.time
        && hold.is_valid_at(now)
}

/// One try in the caller's task, then as often as patience allows.
async fn release_at_store(hold: &Arc<Hold>) -> Result<ReleaseReply> {
    let engine = &hold.engine;
    let give_up = engine.clock.now() + engine.settings.patience.min(hold.lease);
    let mut tries = 0;
    // Whether an earlier try may have released it.
    let mut before = Effect::None;
    loop {
        match attempt(hold).await {
            Ok(reply) => return Ok(judge(reply, before)),
            Err(error) => {
                if error.may_have_taken_effect() {
                    before = Effect::Possible;
                }
                if !error.is_temporary() || engine.clock.now() >= give_up {
                    return Err(error.with_effect(before));
                }
            }
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}

/// What the reply to a release means if an earlier try may have taken effect.
///
/// The hold was valid when its holder gave it up, before the first try was sent. So it had not
/// expired by then: if the store says that it has, it did so afterwards, and nothing was lost. A
/// store that does not know the hold may have forgotten it *because* an earlier try has released it.
/// "Released before" can be nothing else, since only its holder releases it. An eviction is a loss
/// in any case: it can only hit a hold that no try has released, perhaps long before the first one.
fn judge(reply: ReleaseReply, before: Effect) -> ReleaseReply {
    match reply {
        ReleaseReply::WasLost(
            LostReason::Expired | LostReason::Forgotten | LostReason::Released,
        ) if before == Effect::Possible => ReleaseReply::Released,
        definite => definite,
    }
}

/// Tries until the store has answered, or for long enough that the hold must have ended there by itself.
async fn persist(hold: &Arc<Hold>) -> Result<()> {
    let engine = &hold.engine;
    let give_up = engine.clock.now() + insist_for(hold.lease);
    let mut tries = 0;
    let mut effect = Effect::None;
    loop {
        let error = match attempt(hold).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if error.may_have_taken_effect() {
            effect = Effect::Possible;
        }
        if !error.is_temporary() || engine.clock.now() >= give_up {
            hold.finish_leaving();
            return Err(error.with_effect(effect));
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}

async fn attempt(hold: &Arc<Hold>) -> Result<ReleaseReply> {
    let engine = &hold.engine;
    let patience = valid_for(hold.lease).min(engine.settings.patience);
    let reply = patient(&engine.clock, patience, engine.store.release(&hold.spi)).await;
    match reply {
        Some(Ok(reply)) => {
            hold.finish_leaving();
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

/// A release that nobody may be waiting for any more.
struct Unfinished(Option<Arc<Hold>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take().filter(|hold| hold.phase() == Phase::Leaving) {
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
        // The first answer is definite.
        assert_eq!(lost.map(|reply| judge(reply, Effect::None)), lost);
        let held = lost.map(|reply| judge(reply, Effect::Possible).was_held());
        assert_eq!(held, [false, true, true, true]);
        assert!(judge(ReleaseReply::Released, Effect::Possible).was_held());
    }
}
