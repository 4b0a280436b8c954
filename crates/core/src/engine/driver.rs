//! The driver: brings one claim to an end, on the keeper.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Instrument;

use super::acquire::still_valid;
use super::heard::Heard;
use super::lane::{Lane, Slot};
use super::settings::{backoff, insist_for, poll_after};
use super::{Engine, Hold, patient};
use crate::store::{Claim, ClaimReply, Grant, Queued, Wake, Wakes};
use crate::{BootTime, Effect, Error, ErrorKind, Result, telemetry};

/// Starts a driver for a claim, with what is known of it already, and the store's answer if there is
/// one. The lane counts it as a driver; `sent` says whether a request may have reached the store.
pub(super) fn start(slot: Slot, claim: Claim, heard: Heard, sent: bool, queued: Option<Queued>) {
    let (engine, lane) = (slot.engine().clone(), slot.lane().clone());
    let mut driver = Driver {
        engine: engine.clone(),
        lane: lane.clone(),
        claim,
        heard,
        sent,
        unanswered: false,
        failing: None,
        at_work: true,
    };
    if sent && queued.is_none() {
        driver.asks();
    }
    // The slot follows once the task runs. If it were dropped with a task that cannot be started, the
    // lane would start the next driver at once, which cannot be started either.
    let (give, take) = oneshot::channel();
    let driving = async move {
        if let Ok(slot) = take.await {
            driver.run(slot, queued).await;
        }
    };
    let spawned = engine
        .tasks
        .spawn(driving.instrument(tracing::Span::current()));
    match spawned {
        Ok(()) => drop(give.send(slot)),
        Err(error) if sent => lane.fail_all(&error.with_effect(Effect::Possible)),
        Err(error) => lane.fail_all(&error),
    }
}

struct Driver {
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    claim: Claim,
    /// From when a pushed grant is counted.
    heard: Heard,
    /// Whether a request may have reached the store.
    sent: bool,
    /// Whether the store has not answered the last request. The lane counts it.
    unanswered: bool,
    /// Since when, and how often, the store has not answered.
    failing: Option<(BootTime, u32)>,
    /// Whether the lane counts it as a driver.
    at_work: bool,
}

/// What a round of the driver came to.
enum Round {
    Granted(Grant, BootTime),
    Wait(Duration),
    Failed(Error),
}

impl Driver {
    async fn run(mut self, slot: Slot, queued: Option<Queued>) {
        let mut listener = None;
        // A store that has kept the wakes so far need not be asked again.
        let mut known = queued.filter(|queued| queued.wakes_kept);
        loop {
            if self.lane.dismiss_surplus() {
                self.at_work = false;
                let leaver = self.lane.next_leaver();
                self.answered();
                // The lane is free at once: a new claim may queue while this one is withdrawn.
                drop((listener, slot));
                let withdrawn = withdraw(&self.engine, &self.claim).await;
                // The caller may have left.
                let _ = leaver.map(|leaver| leaver.send(withdrawn));
                return;
            }
            // Listening starts before the claim is repeated, so that no hint falls between.
            let wakes = listener.get_or_insert_with(|| Some(self.engine.store.wakes(&self.claim)));
            let round = match known.take() {
                Some(queued) => Some(Round::Wait(self.pause(&queued))),
                None => self.round().await,
            };
            let pause = match round {
                Some(Round::Granted(grant, sent)) => return self.deliver(slot, grant, sent),
                Some(Round::Wait(pause)) => pause,
                Some(Round::Failed(error)) => {
                    self.lane.fail_all(&error);
                    continue;
                }
                // A new request id: its wakes are others.
                None => {
                    listener = None;
                    continue;
                }
            };
            if let Some((grant, sent)) = self.rest(wakes, pause).await {
                return self.deliver(slot, grant, sent);
            }
        }
    }

    /// Sends the claim and waits for the answer. `None` when nobody is left who needs it.
    async fn ask(&self) -> Option<Option<Result<ClaimReply>>> {
        let patience = self.engine.settings.patience;
        let claiming = self.engine.store.claim(&self.claim);
        let mut claiming = std::pin::pin!(patient(&self.engine.clock, patience, claiming));
        loop {
            tokio::select! {
                biased;
                reply = &mut claiming => return Some(reply),
                // While the store is slow. The answer may be the grant for somebody else.
                () = self.lane.left() => if self.lane.has_surplus() {
                    return None;
                },
            }
        }
    }

    /// Claims once more. `None` when the request has ended and a new one takes its place.
    async fn round(&mut self) -> Option<Round> {
        let sent = self.engine.clock.now();
        self.heard.sending(sent);
        let before = (self.sent, self.unanswered);
        self.sent = true;
        self.asks();
        let Some(reply) = self.ask().await else {
            return Some(Round::Wait(Duration::ZERO));
        };
        match &reply {
            Some(Ok(_)) => self.answered(),
            Some(Err(error)) if !error.may_have_taken_effect() => {
                self.sent = before.0;
                if !before.1 {
                    self.answered();
                }
            }
            _ => {}
        }
        Some(match reply {
            Some(Ok(ClaimReply::Granted(grant))) => {
                if still_valid(sent, self.claim.lease, self.engine.clock.now()) {
                    Round::Granted(grant, sent)
                } else {
                    self.start_over();
                    return None;
                }
            }
            Some(Ok(ClaimReply::Queued(queued))) => {
                let now = self.engine.clock.now();
                self.heard.queued(sent, self.claim.lease, now);
                self.healthy();
                telemetry::waiting(&self.claim.name, &queued);
                Round::Wait(self.pause(&queued))
            }
            Some(Ok(ClaimReply::Busy(busy))) => {
                self.healthy();
                let queued = Queued {
                    retry_after: busy.retry_after,
                    ..Queued::default()
                };
                Round::Wait(self.pause(&queued))
            }
            Some(Ok(ClaimReply::Gone(_))) => {
                self.healthy();
                // A copy that was not answered may be under way: the store must remember the end of
                // the old request until it cannot be applied any more.
                self.start_over();
                return None;
            }
            Some(Err(error)) if !error.is_temporary() => Round::Failed(self.explain(error)),
            Some(Err(error)) => self.trouble(error),
            None => self.trouble(
                Error::new(ErrorKind::Unreachable, "the store does not answer")
                    .with_effect(Effect::Possible),
            ),
        })
    }

    /// Waits for a hint, for the poll, or for a waiter to leave. A pushed grant ends it. `wakes` is
    /// `None` when the store gives no more of them.
    async fn rest(
        &mut self,
        wakes: &mut Option<Wakes>,
        pause: Duration,
    ) -> Option<(Grant, BootTime)> {
        let left = self.lane.left();
        let mut left = std::pin::pin!(left);
        left.as_mut().enable();
        if self.lane.has_surplus() {
            return None;
        }
        let mut sleep = std::pin::pin!(self.engine.clock.sleep(pause));
        loop {
            let next = async {
                match wakes {
                    Some(wakes) => wakes.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                wake = next => match wake {
                    Some(Wake::Granted(grant)) => {
                        let now = self.engine.clock.now();
                        let from = self.heard.counted_from(self.claim.lease, now);
                        return from.map(|from| (grant, from));
                    }
                    Some(Wake::Hint) => return None,
                    // No more hints: the poll goes on without them.
                    None => *wakes = None,
                },
                () = &mut sleep => return None,
                () = &mut left => {
                    left.set(self.lane.left());
                    left.as_mut().enable();
                    if self.lane.has_surplus() {
                        return None;
                    }
                }
            }
        }
    }

    fn deliver(mut self, slot: Slot, grant: Grant, sent: BootTime) {
        let hold = Hold::new(slot, &self.claim, grant, sent);
        self.at_work = false;
        self.answered();
        self.lane.deliver(hold);
    }

    /// A request is on its way.
    fn asks(&mut self) {
        if !std::mem::replace(&mut self.unanswered, true) {
            self.lane.count_unanswered(true);
        }
    }

    /// What became of the last request is known.
    fn answered(&mut self) {
        if std::mem::replace(&mut self.unanswered, false) {
            self.lane.count_unanswered(false);
        }
    }

    /// The error with what earlier requests may have done.
    fn explain(&self, error: Error) -> Error {
        match self.sent {
            true => error.with_effect(Effect::Possible),
            false => error,
        }
    }

    fn pause(&self, queued: &Queued) -> Duration {
        let poll = poll_after(self.claim.lease);
        // One moment later than the lease that is waited for, so that it is really over.
        queued
            .retry_after
            .map_or(poll, |free| poll.min(free + Duration::from_millis(1)))
    }

    fn healthy(&mut self) {
        if self.failing.take().is_some() || self.lane.trouble().is_some() {
            self.lane.set_trouble(None);
        }
    }

    /// The store is out of reach: go on for as long as patience lasts.
    fn trouble(&mut self, error: Error) -> Round {
        let now = self.engine.clock.now();
        let (since, tries) = self.failing.unwrap_or((now, 0));
        self.failing = Some((since, tries + 1));
        let error = self.explain(error);
        self.lane.set_trouble(Some(error.clone()));
        if now.since(since) >= self.engine.settings.patience {
            return Round::Failed(error);
        }
        Round::Wait(backoff(tries))
    }

    fn renew_request(&mut self) {
        self.claim.request = self.engine.identity.request();
        self.heard = Heard::default();
        self.sent = false;
    }

    /// A request that has ended, or a grant that came too late to be used: give it back, ask anew.
    fn start_over(&mut self) {
        let old = self.claim.clone();
        self.renew_request();
        // In the background: the new request must not wait for it.
        withdraw_in_background(&self.engine, Arc::new(old));
    }
}

impl Drop for Driver {
    /// It panicked, or could not be started: nobody works for its waiter any more.
    fn drop(&mut self) {
        self.answered();
        if !self.at_work {
            return;
        }
        self.lane.driver_gone();
        if std::thread::panicking() {
            self.lane.fail_all(&self.explain(panicked()));
            withdraw_in_background(&self.engine, Arc::new(self.claim.clone()));
        }
    }
}

fn panicked() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the task that waited for the lock has panicked",
    )
    .with_advice("report the panic message, which is on standard error")
}

/// Withdraws a claim, whatever becomes of the caller.
pub(super) fn withdraw_in_background(engine: &Arc<Engine>, claim: Arc<Claim>) {
    let with = engine.clone();
    let task = async move {
        withdraw(&with, &claim).await;
    };
    if let Err(error) = engine.tasks.spawn(task) {
        tracing::error!(%error, "a claim runs out instead of being withdrawn");
    }
}

/// Withdraws a claim until the store has acknowledged it (`true`), or has surely dropped the claim
/// by itself.
pub(super) async fn withdraw(engine: &Engine, claim: &Claim) -> bool {
    let give_up = engine.clock.now() + insist_for(claim.lease);
    let mut tries = 0;
    loop {
        let patience = engine.settings.patience;
        let error = match patient(&engine.clock, patience, engine.store.withdraw(claim)).await {
            Some(Ok(())) => return true,
            Some(Err(error)) => Some(error),
            None => None,
        };
        let definite = error.as_ref().is_some_and(|error| !error.is_temporary());
        if definite || engine.clock.now() >= give_up {
            tracing::warn!(lock = %claim.name, ?error, "a claim runs out instead of being withdrawn");
            return false;
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}
