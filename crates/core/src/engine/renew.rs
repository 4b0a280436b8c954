//! The renewal schedule of all holds of a client.
//!
//! One task on the keeper sleeps until the first hold is due, takes all that are due about then
//! into one batch, and sends the batch as a task of its own: a store that hangs delays neither the
//! other batches nor the watch on deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Instrument;

use super::settings::{backoff, renew_after};
use super::{Engine, Hold, patient};
use crate::store::{Doubt, Doubts, RenewReply, Renewal};
use crate::{BootTime, Result, telemetry};

/// A place in the schedule.
pub(crate) type DueKey = (BootTime, u64);

/// The most holds in one request.
const BATCH: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Renewer {
    schedule: Mutex<Schedule>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Schedule {
    due: BTreeMap<DueKey, Arc<Hold>>,
    next_id: u64,
    /// When the task will look next; `None` while it waits for a change.
    armed: Option<BootTime>,
    running: bool,
    stopped: bool,
}

impl Renewer {
    /// Schedules a new hold whose claim was sent at `sent`.
    pub(super) fn add(&self, hold: &Arc<Hold>, sent: BootTime) {
        self.put(hold, sent + renew_after(hold.lease));
    }

    fn put(&self, hold: &Arc<Hold>, due: BootTime) {
        let due = hold.deadline().map_or(due, |deadline| due.min(deadline));
        let mut schedule = self.lock();
        schedule.next_id += 1;
        let key = (due, schedule.next_id);
        let Ok(old) = hold.set_due(key) else { return };
        if let Some(old) = old {
            schedule.due.remove(&old);
        }
        schedule.due.insert(key, hold.clone());
        if schedule.armed.is_none_or(|armed| due < armed) {
            schedule.armed = Some(due);
            self.changed.notify_one();
        }
        if !schedule.running && !schedule.stopped {
            schedule.running = true;
            let doubts = hold.engine.store.doubts();
            let task = run(Arc::downgrade(&hold.engine), self.changed.clone(), doubts);
            if let Err(error) = crate::keeper::spawn(task) {
                // Validity does not depend on it: the hold runs out at its deadline.
                tracing::error!(%error, "holds cannot be renewed");
            }
        }
    }

    pub(super) fn remove(&self, key: Option<DueKey>) {
        if let Some(key) = key {
            let removed = self.lock().due.remove(&key);
            drop(removed);
        }
    }

    /// All holds that are renewed.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.lock().due.values().cloned().collect()
    }

    /// The store doubts holds: they are suspect from now on, and due for a renewal, which tells.
    fn doubt(&self, doubt: &Doubt, now: BootTime) {
        let mut doubted = self.holds();
        doubted.retain(|hold| doubt.is_about(hold.spi.request));
        if doubted.is_empty() {
            return;
        }
        tracing::warn!(holds = doubted.len(), "the store doubts holds");
        for hold in doubted {
            hold.suspect();
            self.put(&hold, now);
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Takes out what is due at `now`, and says when to look again.
    fn take_due(&self, now: BootTime) -> (Vec<Arc<Hold>>, Option<BootTime>) {
        let mut schedule = self.lock();
        let mut taken = Vec::new();
        while let Some(entry) = schedule.due.first_entry() {
            // A little early is fine, and makes batches of holds that were granted in a row. After
            // a failure it is not: the pause is there to spare a store that cannot be reached.
            let early = match entry.get().is_suspect() {
                true => Duration::ZERO,
                false => entry.get().lease / 12,
            };
            if entry.key().0 > now + early {
                break;
            }
            taken.push(entry.remove());
        }
        // With nothing left, the moment that was set before stays: else each hold of a client that
        // takes and releases one lock at a time would wake this task up.
        let next = match schedule.due.first_key_value() {
            Some((key, _)) => Some(key.0),
            None => schedule.armed.filter(|armed| *armed > now),
        };
        schedule.armed = next;
        (taken, next)
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task: it holds the engine only while it works, so that a dropped client can go.
async fn run(engine: Weak<Engine>, changed: Arc<Notify>, mut doubts: Doubts) {
    let mut listening = true;
    loop {
        let Some(strong) = engine.upgrade() else {
            return;
        };
        if strong.renewer.is_stopped() {
            return;
        }
        let now = strong.clock.now();
        let (due, next) = strong.renewer.take_due(now);
        for batch in due.chunks(BATCH) {
            start(&strong, batch, now);
        }
        let clock = strong.clock.clone();
        // What `start` put back may be due before `next`; then `changed` has been notified.
        drop((strong, due));
        let due = async {
            match next {
                Some(next) => clock.sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => {}
            () = due => {}
            doubt = doubts.next(), if listening => match (doubt, engine.upgrade()) {
                (Some(doubt), Some(engine)) => engine.renewer.doubt(&doubt, clock.now()),
                // The store tells no more; renewals go on without.
                _ => listening = false,
            },
        }
    }
}

/// Sends one batch, and puts its holds back so that their deadlines stay watched meanwhile.
fn start(engine: &Arc<Engine>, holds: &[Arc<Hold>], now: BootTime) {
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
            Some(_) => {
                engine.renewer.put(hold, now + renew_after(hold.lease));
                batch.push(hold.clone());
            }
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
    let again = engine.clock.now() + retry_after(batch);
    let replies = match reply {
        Some(Ok(replies)) => replies,
        failed => {
            if let Some(Err(error)) = failed {
                tracing::warn!(%error, holds = batch.len(), "renewal failed");
            } else {
                tracing::warn!(holds = batch.len(), "renewal was not answered");
            }
            for hold in batch {
                unrenewed(engine, hold, again);
            }
            return;
        }
    };
    for (hold, reply) in batch.iter().zip(replies) {
        match reply {
            RenewReply::Held if hold.extend(sent) => {
                telemetry::renewed(&hold.spi.name);
                engine.renewer.put(hold, sent + renew_after(hold.lease));
            }
            RenewReply::Held => {}
            RenewReply::Lost(reason) => hold.lose(reason),
            RenewReply::Unknown => unrenewed(engine, hold, again),
        }
    }
}

/// A renewal that failed or was not answered: the hold is in doubt until the next one is.
fn unrenewed(engine: &Engine, hold: &Arc<Hold>, again: BootTime) {
    hold.suspect();
    telemetry::renewal_failed();
    engine.renewer.put(hold, again);
}

/// The pause after a failed renewal: short against the lease, so that several tries fit in.
fn retry_after(batch: &[Arc<Hold>]) -> Duration {
    let shortest = batch
        .iter()
        .map(|hold| hold.lease)
        .min()
        .unwrap_or_default();
    (shortest / 24).min(backoff(4))
}
