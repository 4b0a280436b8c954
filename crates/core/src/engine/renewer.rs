//! The renewal schedule of all holds of a client.
//!
//! One task on the keeper sleeps until the first hold is due, takes all that are due about then
//! into one batch, and sends the batch as a task of its own: a store that hangs delays neither the
//! other batches nor the watch on deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::settings::renew_after;
use super::{Engine, Hold, extend, leave};
use crate::BootTime;
use crate::store::{Doubt, Doubts};

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
    /// Set by `close`: what is scheduled from then on is lost.
    closed: bool,
    stopped: bool,
}

impl Renewer {
    /// Schedules a new hold whose claim was sent at `sent`.
    pub(super) fn add(&self, hold: &Arc<Hold>, sent: BootTime) {
        self.put(hold, sent + renew_after(hold.lease));
    }

    pub(super) fn put(&self, hold: &Arc<Hold>, due: BootTime) {
        let mut schedule = self.lock();
        if schedule.closed {
            drop(schedule);
            return leave::end_closed(hold);
        }
        let Some(due) = schedule.place(hold, due) else {
            return;
        };
        if schedule.armed.is_none_or(|armed| due < armed) {
            schedule.armed = Some(due);
            self.changed.notify_one();
        }
        if !schedule.running && !schedule.stopped {
            schedule.running = true;
            let doubts = hold.engine.store.doubts();
            let task = run(Arc::downgrade(&hold.engine), self.changed.clone(), doubts);
            if let Err(error) = crate::keeper::spawn(task) {
                // Validity does not depend on it: the hold runs out at its deadline. The next hold
                // tries again.
                schedule.running = false;
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

    /// Schedules nothing any more, and returns what is scheduled: all holds that are valid.
    pub(super) fn close(&self) -> Vec<Arc<Hold>> {
        let mut schedule = self.lock();
        schedule.closed = true;
        schedule.due.values().cloned().collect()
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

    /// What is due at `now`, and when to look again. Each hold that is due gets its next place in the
    /// same step, so that its deadline stays watched, and `close` finds it.
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
        for hold in &taken {
            schedule.place(hold, now + renew_after(hold.lease));
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

impl Schedule {
    /// Gives a hold its place, in place of an earlier one; `None` when the hold has ended.
    fn place(&mut self, hold: &Arc<Hold>, due: BootTime) -> Option<BootTime> {
        let due = hold.deadline().map_or(due, |deadline| due.min(deadline));
        self.next_id += 1;
        let key = (due, self.next_id);
        if let Some(old) = hold.set_due(key).ok()? {
            self.due.remove(&old);
        }
        self.due.insert(key, hold.clone());
        Some(due)
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
        // What failed before is tried apart from what is well: if it fails again, it fails alone.
        let (suspect, well): (Vec<_>, Vec<_>) = due.iter().cloned().partition(|h| h.is_suspect());
        for batch in well.chunks(BATCH).chain(suspect.chunks(BATCH)) {
            extend::start(&strong, batch);
        }
        let clock = strong.clock.clone();
        // What `extend` moved may be due before `next`; then `changed` has been notified.
        drop((strong, due, well, suspect));
        let due = async {
            match next {
                Some(next) => clock.sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
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
