//! Renewal schedule of all holds of a client.
//!
//! One task on the keeper sleeps until the first hold is due and puts all holds that are due about then
//! into one batch. Each batch is a task of its own: a slow store delays neither the other batches nor
//! the checks of deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::settings::renew_after;
use super::{Engine, Hold, release, renewal_batch};
use crate::BootTime;
use crate::store::{Suspicion, Suspicions};

/// Key of a hold in the schedule: when it is due, and a unique number.
pub(crate) type DueKey = (BootTime, u64);

/// Largest number of holds in one request.
const MAX_BATCH: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Renewer {
    state: Mutex<State>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    due: BTreeMap<DueKey, Arc<Hold>>,
    next_id: u64,
    /// When the task wakes next; `None` while it waits for a change.
    next_wake: Option<BootTime>,
    running: bool,
    /// Set by `close`: a hold that is scheduled later is lost.
    closed: bool,
    stopped: bool,
}

impl Renewer {
    /// Schedules a new hold whose claim was sent at `sent`.
    pub(super) fn add(&self, hold: &Arc<Hold>, sent: BootTime) {
        self.schedule_at(hold, sent + renew_after(hold.lease));
    }

    /// Schedules a hold, in place of its earlier entry.
    pub(super) fn schedule_at(&self, hold: &Arc<Hold>, due: BootTime) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return release::lose_closed(hold);
        }
        let Some(due) = state.insert(hold, due) else {
            return;
        };
        if state.next_wake.is_none_or(|next_wake| due < next_wake) {
            state.next_wake = Some(due);
            self.changed.notify_one();
        }
        if !state.running && !state.stopped {
            state.running = true;
            let suspicions = hold.engine.store.suspicions();
            let task = run(
                Arc::downgrade(&hold.engine),
                self.changed.clone(),
                suspicions,
            );
            if let Err(error) = crate::keeper::spawn(task) {
                // The hold stays valid until its deadline. The next hold that is scheduled tries again.
                state.running = false;
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

    /// All scheduled holds.
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.lock().due.values().cloned().collect()
    }

    /// Refuses further holds and returns the scheduled ones: all valid holds of the client.
    pub(super) fn close(&self) -> Vec<Arc<Hold>> {
        let mut state = self.lock();
        state.closed = true;
        state.due.values().cloned().collect()
    }

    /// The store suspects that holds have ended: they are renewed at once, to find out.
    fn suspect(&self, suspicion: &Suspicion, now: BootTime) {
        let mut suspects = self.holds();
        suspects.retain(|hold| suspicion.is_about(hold.store_hold.request));
        if suspects.is_empty() {
            return;
        }
        tracing::warn!(
            holds = suspects.len(),
            "the store suspects that holds have ended"
        );
        for hold in suspects {
            hold.mark_suspect();
            self.schedule_at(&hold, now);
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// The holds that are due at `now`, and when to wake next. In the same step each of these is scheduled
    /// again, so that its deadline is still checked and `close` finds it.
    fn take_due(&self, now: BootTime) -> (Vec<Arc<Hold>>, Option<BootTime>) {
        let mut state = self.lock();
        let mut taken = Vec::new();
        while let Some(entry) = state.due.first_entry() {
            // Healthy holds may be renewed a little early, which makes larger batches. After a failure
            // they may not: the backoff spares a store that cannot be reached.
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
            state.insert(hold, now + renew_after(hold.lease));
        }
        // If the schedule is empty, the wake that was set before stays. Otherwise a client that takes
        // and releases one lock at a time would wake this task for each hold.
        let next = match state.due.first_key_value() {
            Some((key, _)) => Some(key.0),
            None => state.next_wake.filter(|next_wake| *next_wake > now),
        };
        state.next_wake = next;
        (taken, next)
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Schedules a hold at the latest at its deadline; `None` if the hold has ended.
    fn insert(&mut self, hold: &Arc<Hold>, due: BootTime) -> Option<BootTime> {
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

/// The task. It keeps no strong reference to the engine while it sleeps, so that a client can be
/// dropped.
async fn run(engine: Weak<Engine>, changed: Arc<Notify>, mut suspicions: Suspicions) {
    let mut subscribed = true;
    loop {
        let Some(strong) = engine.upgrade() else {
            return;
        };
        if strong.renewer.is_stopped() {
            return;
        }
        let now = strong.clock.now();
        let (due, next) = strong.renewer.take_due(now);
        // Suspect holds get batches of their own: if they fail again, the others are not affected.
        let (suspect, healthy): (Vec<_>, Vec<_>) =
            due.iter().cloned().partition(|h| h.is_suspect());
        for batch in healthy.chunks(MAX_BATCH).chain(suspect.chunks(MAX_BATCH)) {
            renewal_batch::start(&strong, batch);
        }
        let clock = strong.clock.clone();
        // If a batch has moved a hold to before `next`, `changed` has been notified.
        drop((strong, due, healthy, suspect));
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
            suspicion = suspicions.next(), if subscribed => match (suspicion, engine.upgrade()) {
                (Some(suspicion), Some(engine)) => engine.renewer.suspect(&suspicion, clock.now()),
                // The stream has ended; renewals go on without it.
                _ => subscribed = false,
            },
        }
    }
}
