//! The driver: a task on the keeper that repeats one claim until it is granted to a waiter, withdrawn or
//! failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Instrument;

use super::grant_bound::EarliestGrant;
use super::settings::{backoff, poll_after, still_valid};
use super::slot::Slot;
use super::withdraw::{withdraw, withdraw_in_background};
use super::{Engine, Hold, LocalQueue, with_timeout};
use crate::store::{Claim, ClaimReply, Grant, Queued, Wake, Wakes};
use crate::{BootTime, Effect, Error, ErrorKind, Result, telemetry};

/// Starts a driver for a claim that the local queue has counted already. `maybe_sent`: a request may
/// have reached the store. `queued`: the store's reply to it, if there is one.
pub(super) fn start(
    slot: Slot,
    claim: Claim,
    earliest_grant: EarliestGrant,
    maybe_sent: bool,
    queued: Option<Queued>,
) {
    let (engine, local_queue) = (slot.engine().clone(), slot.local_queue().clone());
    let mut driver = Driver {
        engine: engine.clone(),
        local_queue: local_queue.clone(),
        claim,
        earliest_grant,
        maybe_sent,
        unanswered: false,
        failing: None,
        counted: true,
    };
    if maybe_sent && queued.is_none() {
        driver.request_sent();
    }
    // The task gets its slot once it is spawned. If the slot were dropped with a task that cannot be
    // spawned, the queue would try to spawn the next driver at once, in an endless loop.
    let (slot_sender, slot_receiver) = oneshot::channel();
    let driving = async move {
        if let Ok(slot) = slot_receiver.await {
            driver.run(slot, queued).await;
        }
    };
    let spawned = engine
        .tasks
        .spawn(driving.instrument(tracing::Span::current()));
    match spawned {
        Ok(()) => drop(slot_sender.send(slot)),
        Err(error) if maybe_sent => local_queue.fail_all(&error.with_effect(Effect::Possible)),
        Err(error) => local_queue.fail_all(&error),
    }
}

struct Driver {
    engine: Arc<Engine>,
    local_queue: Arc<LocalQueue>,
    claim: Claim,
    /// The lease of a pushed grant counts from here.
    earliest_grant: EarliestGrant,
    /// Whether a request may have reached the store.
    maybe_sent: bool,
    /// Whether the last request has no reply yet. The queue counts these.
    unanswered: bool,
    /// Since when, and how often in a row, requests have failed.
    failing: Option<(BootTime, u32)>,
    /// Whether the queue still counts this driver.
    counted: bool,
}

/// What follows from one request.
enum Step {
    /// A grant and the moment its lease counts from.
    Granted(Grant, BootTime),
    Wait(Duration),
    Failed(Error),
}

impl Driver {
    async fn run(mut self, slot: Slot, queued: Option<Queued>) {
        let mut subscription = None;
        // If the store has kept the wakes since its reply, the claim need not be repeated first.
        let mut reply = queued.filter(|queued| queued.wakes_kept);
        loop {
            if self.local_queue.retire_if_surplus() {
                self.counted = false;
                let listener = self.local_queue.take_withdrawal_listener();
                self.request_answered();
                // Frees the slot at once: a new claim may queue while this one is withdrawn.
                drop((subscription, slot));
                let withdrawn = withdraw(&self.engine, &self.claim).await;
                // Fails if the caller was dropped.
                let _ = listener.map(|listener| listener.send(withdrawn));
                return;
            }
            // Subscribes before the claim is repeated, so that no wake is missed in between.
            let wakes =
                subscription.get_or_insert_with(|| Some(self.engine.store.wakes(&self.claim)));
            let step = match reply.take() {
                Some(queued) => Some(Step::Wait(self.poll_delay(&queued))),
                None => self.repeat_claim().await,
            };
            let delay = match step {
                Some(Step::Granted(grant, sent)) => return self.deliver(slot, grant, sent),
                Some(Step::Wait(delay)) => delay,
                Some(Step::Failed(error)) => {
                    self.local_queue.fail_all(&error);
                    continue;
                }
                // A new request id has wakes of its own.
                None => {
                    subscription = None;
                    continue;
                }
            };
            if let Some((grant, sent)) = self.wait_for_wake(wakes, delay).await {
                return self.deliver(slot, grant, sent);
            }
        }
    }

    /// Sends the claim and waits for the reply. `None` if no waiter is left for this driver.
    async fn send_claim(&self) -> Option<Option<Result<ClaimReply>>> {
        let timeout = self.engine.settings.patience;
        let claiming = self.engine.store.claim(&self.claim);
        let mut claiming = std::pin::pin!(with_timeout(&self.engine.clock, timeout, claiming));
        loop {
            tokio::select! {
                biased;
                reply = &mut claiming => return Some(reply),
                // The store is slow. If other waiters are left, the reply may be the grant for them.
                () = self.local_queue.waiter_left() => if self.local_queue.has_surplus() {
                    return None;
                },
            }
        }
    }

    /// Sends the claim again. `None` if the request has ended and a new one takes its place.
    async fn repeat_claim(&mut self) -> Option<Step> {
        let sent = self.engine.clock.now();
        self.earliest_grant.sending(sent);
        let before = (self.maybe_sent, self.unanswered);
        self.maybe_sent = true;
        self.request_sent();
        let Some(reply) = self.send_claim().await else {
            return Some(Step::Wait(Duration::ZERO));
        };
        match &reply {
            Some(Ok(_)) => self.request_answered(),
            Some(Err(error)) if !error.may_have_taken_effect() => {
                self.maybe_sent = before.0;
                if !before.1 {
                    self.request_answered();
                }
            }
            _ => {}
        }
        Some(match reply {
            Some(Ok(ClaimReply::Granted(grant))) => {
                if still_valid(sent, self.claim.lease, self.engine.clock.now()) {
                    Step::Granted(grant, sent)
                } else {
                    self.start_over();
                    return None;
                }
            }
            Some(Ok(ClaimReply::Queued(queued))) => {
                let now = self.engine.clock.now();
                self.earliest_grant.queued(sent, self.claim.lease, now);
                self.store_answered();
                telemetry::waiting(&self.claim.name, &queued);
                Step::Wait(self.poll_delay(&queued))
            }
            Some(Ok(ClaimReply::Busy(busy))) => {
                self.store_answered();
                let queued = Queued {
                    retry_after: busy.retry_after,
                    ..Queued::default()
                };
                Step::Wait(self.poll_delay(&queued))
            }
            Some(Ok(ClaimReply::Gone(_))) => {
                self.store_answered();
                // An unanswered copy may be under way: the store must remember that the old request
                // has ended until no copy can be applied any more.
                self.start_over();
                return None;
            }
            Some(Err(error)) if !error.is_temporary() => {
                Step::Failed(self.with_possible_effect(error))
            }
            Some(Err(error)) => self.store_failed(error),
            None => self.store_failed(
                Error::new(ErrorKind::Unreachable, "the store does not answer")
                    .with_effect(Effect::Possible),
            ),
        })
    }

    /// Waits for a wake, at most `delay`, or until this driver is surplus. Returns a pushed grant and the
    /// start of its lease. `wakes` becomes `None` when the store has ended the stream.
    async fn wait_for_wake(
        &mut self,
        wakes: &mut Option<Wakes>,
        delay: Duration,
    ) -> Option<(Grant, BootTime)> {
        let left = self.local_queue.waiter_left();
        let mut left = std::pin::pin!(left);
        left.as_mut().enable();
        if self.local_queue.has_surplus() {
            return None;
        }
        let mut sleep = std::pin::pin!(self.engine.clock.sleep(delay));
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
                        let from = self.earliest_grant.lease_start(self.claim.lease, now);
                        return from.map(|from| (grant, from));
                    }
                    Some(Wake::Hint) => return None,
                    // The poll goes on without wakes.
                    None => *wakes = None,
                },
                () = &mut sleep => return None,
                () = &mut left => {
                    left.set(self.local_queue.waiter_left());
                    left.as_mut().enable();
                    if self.local_queue.has_surplus() {
                        return None;
                    }
                }
            }
        }
    }

    fn deliver(mut self, slot: Slot, grant: Grant, sent: BootTime) {
        let hold = Hold::new(slot, &self.claim, grant, sent);
        self.counted = false;
        self.request_answered();
        self.local_queue.deliver(hold);
    }

    fn request_sent(&mut self) {
        if !std::mem::replace(&mut self.unanswered, true) {
            self.local_queue.count_unanswered(true);
        }
    }

    /// The outcome of the last request is known, or no longer matters.
    fn request_answered(&mut self) {
        if std::mem::replace(&mut self.unanswered, false) {
            self.local_queue.count_unanswered(false);
        }
    }

    /// Marks the error if an earlier request may have taken effect.
    fn with_possible_effect(&self, error: Error) -> Error {
        match self.maybe_sent {
            true => error.with_effect(Effect::Possible),
            false => error,
        }
    }

    /// How long to wait for a wake before the claim is repeated.
    fn poll_delay(&self, queued: &Queued) -> Duration {
        let poll = poll_after(self.claim.lease);
        // One millisecond after the lease that is waited for, so that it has surely ended.
        queued
            .retry_after
            .map_or(poll, |free| poll.min(free + Duration::from_millis(1)))
    }

    fn store_answered(&mut self) {
        if self.failing.take().is_some() || self.local_queue.store_error().is_some() {
            self.local_queue.set_store_error(None);
        }
    }

    /// The store cannot be reached: retries with backoff until `Settings::patience` is used up.
    fn store_failed(&mut self, error: Error) -> Step {
        let now = self.engine.clock.now();
        let (since, tries) = self.failing.unwrap_or((now, 0));
        self.failing = Some((since, tries + 1));
        let error = self.with_possible_effect(error);
        self.local_queue.set_store_error(Some(error.clone()));
        if now.since(since) >= self.engine.settings.patience {
            return Step::Failed(error);
        }
        Step::Wait(backoff(tries))
    }

    fn new_request(&mut self) {
        self.claim.request = self.engine.identity.request();
        self.earliest_grant = EarliestGrant::default();
        self.maybe_sent = false;
    }

    /// The request has ended, or its grant came too late to be used: withdraws it and starts a new one.
    fn start_over(&mut self) {
        let old = self.claim.clone();
        self.new_request();
        // In the background: the new request must not wait for it.
        withdraw_in_background(&self.engine, Arc::new(old));
    }
}

impl Drop for Driver {
    /// If the driver panicked or could not be spawned, its waiter has no driver any more.
    fn drop(&mut self) {
        self.request_answered();
        if !self.counted {
            return;
        }
        self.local_queue.driver_ended();
        if std::thread::panicking() {
            self.local_queue
                .fail_all(&self.with_possible_effect(panicked()));
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
