//! Queue of the callers of one process that claim the same lock.
//!
//! Claims of a client with equal [`ClaimSpec`]s share a queue. Of these, the process sends only as many
//! to the store as can be granted at once ([`LocalQueue::max_live_claims`]). On release, the hold goes
//! to the next local waiter. A `fair` claim has a queue of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::grant_bound::EarliestGrant;
use super::local_wait::LocalWait;
use super::slot::Slot;
use super::{Engine, Hold, LocalHold, driver};
use crate::{BootTime, Error, Name, OwnerId, Result, telemetry};

/// All parameters of a claim. Claims with equal parameters can take over each other's holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClaimSpec {
    pub(crate) name: Name,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) value: Option<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct LocalQueue {
    engine: Arc<Engine>,
    spec: ClaimSpec,
    /// Whether it serves a single caller: then a hold is never handed over.
    private: bool,
    state: Mutex<State>,
    /// Notified when a waiter has left: a driver may be surplus.
    waiter_left: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) waiters: VecDeque<Waiter>,
    /// Claims at the store: being sent, queued or held.
    live_claims: u32,
    /// Drivers on the keeper; each works on one of these claims.
    drivers: u32,
    /// Drivers whose last request the store has not answered.
    pub(super) unanswered: u32,
    /// Callers that timed out while a request was unanswered. They wait to learn whether that claim was
    /// withdrawn; at most one for each surplus driver.
    pub(super) withdrawal_listeners: VecDeque<oneshot::Sender<bool>>,
    next_id: u64,
    /// Last error of the store, while drivers keep retrying.
    store_error: Option<Error>,
    /// Set once the client has been closed; new waiters get this error.
    closed: Option<Error>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: u64,
    owner: OwnerId,
    sender: oneshot::Sender<Result<LocalHold>>,
}

/// Result of [`LocalQueue::enter`].
#[derive(Debug)]
pub(super) enum Entered {
    /// The caller claims at the store.
    Claim(Slot),
    /// The caller waits for a hold of this process.
    Wait(LocalWait),
    /// The caller only tries, and would have to wait.
    Full,
}

impl LocalQueue {
    pub(super) fn new(engine: Arc<Engine>, spec: ClaimSpec, private: bool) -> Arc<Self> {
        Arc::new(Self {
            engine,
            spec,
            private,
            state: Mutex::default(),
            waiter_left: Notify::new(),
        })
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn spec(&self) -> &ClaimSpec {
        &self.spec
    }

    /// How many claims with this spec can be held at once: more of them at the store are useless.
    fn max_live_claims(&self) -> u32 {
        (self.spec.limit / self.spec.units.max(1)).max(1)
    }

    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.live_claims == 0 && state.waiters.is_empty()
    }

    /// Enters the queue. A caller that only tries never waits in it.
    pub(super) fn enter(self: &Arc<Self>, owner: &OwnerId, only_try: bool) -> Entered {
        let mut state = self.state();
        if state.live_claims < self.max_live_claims() && state.waiters.is_empty() {
            state.live_claims += 1;
            return Entered::Claim(Slot::new(self.clone()));
        }
        if only_try {
            return Entered::Full;
        }
        let waiting = self.push_waiter(&mut state, owner, false);
        self.spawn_drivers(state);
        Entered::Wait(waiting)
    }

    /// Waits at the head of the queue. The caller has sent its claim already; a driver takes it over.
    pub(super) fn wait_at_head(self: &Arc<Self>, owner: &OwnerId) -> LocalWait {
        let mut state = self.state();
        state.drivers += 1;
        self.push_waiter(&mut state, owner, true)
    }

    /// A driver takes over a claim whose caller was dropped.
    pub(super) fn add_driver(&self) {
        self.state().drivers += 1;
    }

    fn push_waiter(
        self: &Arc<Self>,
        state: &mut State,
        owner: &OwnerId,
        at_head: bool,
    ) -> LocalWait {
        let (sender, receiver) = oneshot::channel();
        if let Some(closed) = &state.closed {
            drop(sender.send(Err(closed.clone())));
            return LocalWait::new(self.clone(), 0, receiver);
        }
        state.next_id += 1;
        let waiter = Waiter {
            id: state.next_id,
            owner: owner.clone(),
            sender,
        };
        let id = waiter.id;
        match at_head {
            true => state.waiters.push_front(waiter),
            false => state.waiters.push_back(waiter),
        }
        telemetry::queued(state.waiters.len());
        state.resolve_withdrawal_listeners();
        LocalWait::new(self.clone(), id, receiver)
    }

    /// Spawns drivers for unserved waiters, up to `max_live_claims`.
    fn spawn_drivers(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut owners = Vec::new();
        while (state.drivers as usize) < state.waiters.len()
            && state.live_claims < self.max_live_claims()
        {
            let next = state.waiters.get(state.drivers as usize);
            owners.extend(next.map(|waiter| waiter.owner.clone()));
            state.live_claims += 1;
            state.drivers += 1;
        }
        drop(state);
        for owner in owners {
            let slot = Slot::new(self.clone());
            let claim = self.engine.new_claim(&self.spec, &owner, true);
            driver::start(slot, claim, EarliestGrant::default(), false, None);
        }
    }

    /// Passes the hold to the next waiter; `false` if there is none, or its local turn is over.
    pub(super) fn hand_over(&self, local_hold: &LocalHold, now: BootTime) -> bool {
        if self.private {
            return false;
        }
        let mut state = self.state();
        if !local_hold
            .hold()
            .may_stay_local(local_hold.local(), state.waiters.len(), now)
        {
            return false;
        }
        while let Some(waiter) = state.waiters.pop_front() {
            if waiter.sender.is_closed() {
                continue;
            }
            let next = local_hold.next(waiter.owner, now);
            let has_drivers = state.drivers > 0;
            // Sent after unlocking: if the waiter has just left, `next` is dropped, which locks again.
            drop(state);
            drop(waiter.sender.send(Ok(next)));
            if has_drivers {
                self.waiter_left.notify_waiters();
            }
            return true;
        }
        false
    }

    /// Gives a new hold to the first waiter. Without a waiter the hold is released.
    pub(super) fn deliver(&self, hold: Arc<Hold>) {
        let mut state = self.state();
        state.drivers = state.drivers.saturating_sub(1);
        state.store_error = None;
        let waiter = loop {
            match state.waiters.pop_front() {
                Some(waiter) if waiter.sender.is_closed() => {}
                other => break other,
            }
        };
        state.resolve_withdrawal_listeners();
        drop(state);
        match waiter {
            Some(waiter) => {
                let local_hold = LocalHold::first(hold, waiter.owner);
                drop(waiter.sender.send(Ok(local_hold)));
            }
            None => drop(LocalHold::first(hold, OwnerId::new("nobody"))),
        }
    }

    /// The client has been closed: all waiters, present and future, get this error.
    pub(super) fn close(&self, error: &Error) {
        self.state().closed = Some(error.clone());
        self.fail_all(error);
    }

    /// A driver has ended without delivering or withdrawing its claim.
    pub(super) fn driver_ended(&self) {
        let mut state = self.state();
        state.drivers = state.drivers.saturating_sub(1);
    }

    /// A driver has sent a request, or has got its reply.
    pub(super) fn count_unanswered(&self, one_more: bool) {
        let mut state = self.state();
        state.unanswered = match one_more {
            true => state.unanswered + 1,
            false => state.unanswered.saturating_sub(1),
        };
    }

    /// The caller, if any, that waits for the withdrawal by the driver that has just been retired.
    pub(super) fn take_withdrawal_listener(&self) -> Option<oneshot::Sender<bool>> {
        let mut state = self.state();
        let listener = state.withdrawal_listeners.pop_front();
        state.resolve_withdrawal_listeners();
        listener
    }

    /// Ends every wait with this error.
    pub(super) fn fail_all(&self, error: &Error) {
        let mut state = self.state();
        let waiters = std::mem::take(&mut state.waiters);
        // Dropping these reports an unknown outcome: their claims may not be withdrawn.
        let withdrawal_listeners = std::mem::take(&mut state.withdrawal_listeners);
        drop(state);
        drop(withdrawal_listeners);
        for waiter in waiters {
            drop(waiter.sender.send(Err(error.clone())));
        }
        self.waiter_left.notify_waiters();
    }

    /// Returns `true` if this driver is surplus; it must then withdraw its claim and exit.
    pub(super) fn retire_if_surplus(&self) -> bool {
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.sender.is_closed());
        let surplus = state.drivers as usize > state.waiters.len();
        if surplus {
            state.drivers -= 1;
        }
        surplus
    }

    /// Whether [`retire_if_surplus`](Self::retire_if_surplus) would retire a driver now.
    pub(super) fn has_surplus(&self) -> bool {
        self.state().surplus() > 0
    }

    /// Completes when a waiter may have left.
    pub(super) fn waiter_left(&self) -> tokio::sync::futures::Notified<'_> {
        self.waiter_left.notified()
    }

    /// Keeps the last error of the store for waiters that time out meanwhile.
    pub(super) fn set_store_error(&self, error: Option<Error>) {
        self.state().store_error = error;
    }

    pub(super) fn store_error(&self) -> Option<Error> {
        self.state().store_error.clone()
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let state = self.state();
        let (live_claims, drivers) = (state.live_claims, state.drivers);
        let waiters = state.waiters.len();
        format!(
            "local queue {:?}: {live_claims} live claims, {drivers} drivers, {waiters} waiting",
            self.spec.name
        )
    }

    pub(super) fn notify_waiter_left(&self) {
        self.waiter_left.notify_waiters();
    }

    /// A claim has ended: spawns a driver for the next waiter, or retires an unused queue.
    pub(super) fn end_claim(self: &Arc<Self>) {
        let mut state = self.state();
        state.live_claims = state.live_claims.saturating_sub(1);
        let idle = state.live_claims == 0 && state.waiters.is_empty();
        self.spawn_drivers(state);
        if idle && !self.private {
            self.engine.local_queues.unshare_if_idle(self);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Number of drivers without a waiter.
    pub(super) fn surplus(&self) -> usize {
        let drivers = self.drivers as usize;
        // There are often many more waiters than drivers: counting up to `drivers` is enough.
        let waiting = self.waiters.iter();
        let waiting = waiting.filter(|waiter| !waiter.sender.is_closed());
        drivers - waiting.take(drivers).count()
    }

    /// If a surplus driver has got a new waiter, it withdraws nothing: its grant goes to that waiter. So
    /// a caller that timed out has definitely not acquired the lock.
    fn resolve_withdrawal_listeners(&mut self) {
        let surplus = self.surplus();
        while self.withdrawal_listeners.len() > surplus {
            let listener = self.withdrawal_listeners.pop_back();
            // Fails if the caller was dropped.
            let _ = listener.map(|listener| listener.send(true));
        }
    }
}

impl Drop for LocalQueue {
    fn drop(&mut self) {
        if self.engine.is_own_process() {
            self.engine.local_queues.remove(self);
        }
    }
}
