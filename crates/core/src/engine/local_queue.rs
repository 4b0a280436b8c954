//! Where the claims of one process on one name queue.
//!
//! All claims of a client that are alike (name, units, lease, label, …) share a lane. The process
//! claims at the store at most as often as can be useful ([`Lane::max_live`]), and on release the
//! hold goes to the next in the lane. A `fair` claim has a lane of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::heard::Heard;
use super::{Engine, Hold, Tenure, drive};
use crate::{BootTime, Error, Name, OwnerId, Result, telemetry};

/// What makes claims alike, so that one can take over the hold of another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
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
pub(crate) struct Lane {
    engine: Arc<Engine>,
    key: LaneKey,
    private: bool,
    state: Mutex<State>,
    /// Rings when a waiter has left: a driver may be one too many.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiters: VecDeque<Waiter>,
    /// Claims at the store that are being made, queued or held.
    live: u32,
    /// Those of them that a driver on the keeper works on.
    driven: u32,
    /// Those of them whose last request the store has not answered.
    unanswered: u32,
    /// Callers whose time was up while a request was unanswered, at most one for each driver that is
    /// one too many: they hear whether that claim was withdrawn.
    leavers: VecDeque<oneshot::Sender<bool>>,
    next_id: u64,
    /// The error that drivers meet at present, while they still hope.
    trouble: Option<Error>,
    /// Set when the client has been closed: nobody waits here any more.
    closed: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    owner: OwnerId,
    tell: oneshot::Sender<Result<Tenure>>,
}

/// How a claim gets into a lane.
#[derive(Debug)]
pub(super) enum Entered {
    /// It is to claim at the store.
    First(Slot),
    /// It waits for a hold of this lane.
    Waiting(Waiting),
    /// It would have to wait.
    Full,
}

impl Lane {
    pub(super) fn new(engine: Arc<Engine>, key: LaneKey, private: bool) -> Arc<Self> {
        Arc::new(Self {
            engine,
            key,
            private,
            state: Mutex::default(),
            left: Notify::new(),
        })
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn key(&self) -> &LaneKey {
        &self.key
    }

    /// How many claims of this kind can be granted at once: more of them at the store are useless.
    fn max_live(&self) -> u32 {
        (self.key.limit / self.key.units.max(1)).max(1)
    }

    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.live == 0 && state.waiters.is_empty()
    }

    /// Enters the lane; a claim that only tries never waits in it.
    pub(super) fn enter(self: &Arc<Self>, owner: &OwnerId, only_try: bool) -> Entered {
        let mut state = self.state();
        if state.live < self.max_live() && state.waiters.is_empty() {
            state.live += 1;
            return Entered::First(Slot { lane: self.clone() });
        }
        if only_try {
            return Entered::Full;
        }
        let waiting = self.push(&mut state, owner, false);
        self.staff(state);
        Entered::Waiting(waiting)
    }

    /// Waits at the head of the lane for the claim that this caller began; a driver takes it over.
    pub(super) fn wait_first(self: &Arc<Self>, owner: &OwnerId) -> Waiting {
        let mut state = self.state();
        state.driven += 1;
        self.push(&mut state, owner, true)
    }

    /// A driver takes over a claim whose caller has gone.
    pub(super) fn adopt(&self) {
        self.state().driven += 1;
    }

    fn push(self: &Arc<Self>, state: &mut State, owner: &OwnerId, first: bool) -> Waiting {
        let (tell, told) = oneshot::channel();
        if let Some(closed) = &state.closed {
            drop(tell.send(Err(closed.clone())));
            return Waiting {
                lane: self.clone(),
                id: 0,
                told: Some(told),
            };
        }
        state.next_id += 1;
        let waiter = Waiter {
            id: state.next_id,
            owner: owner.clone(),
            tell,
        };
        let id = waiter.id;
        match first {
            true => state.waiters.push_front(waiter),
            false => state.waiters.push_back(waiter),
        }
        telemetry::queued(state.waiters.len());
        state.settle_leavers();
        Waiting {
            lane: self.clone(),
            id,
            told: Some(told),
        }
    }

    /// Starts drivers for waiters that nobody works for, as far as claims are useful.
    fn staff(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut owners = Vec::new();
        while (state.driven as usize) < state.waiters.len() && state.live < self.max_live() {
            let next = state.waiters.get(state.driven as usize);
            owners.extend(next.map(|waiter| waiter.owner.clone()));
            state.live += 1;
            state.driven += 1;
        }
        drop(state);
        for owner in owners {
            let slot = Slot { lane: self.clone() };
            let claim = self.engine.claim(&self.key, &owner, true);
            drive::start(slot, claim, Heard::default(), false, None);
        }
    }

    /// Passes the hold of this tenure to the next waiter; `false` when there is none.
    pub(super) fn hand_over(&self, tenure: &Tenure, now: BootTime) -> bool {
        if self.private {
            return false;
        }
        let mut state = self.state();
        if !tenure
            .hold()
            .may_stay(tenure.local(), state.waiters.len(), now)
        {
            return false;
        }
        while let Some(waiter) = state.waiters.pop_front() {
            if waiter.tell.is_closed() {
                continue;
            }
            let next = tenure.next(waiter.owner, now);
            let driven = state.driven > 0;
            // Told outside the lock: a waiter that has just gone drops the tenure, which comes back.
            drop(state);
            drop(waiter.tell.send(Ok(next)));
            if driven {
                self.left.notify_waiters();
            }
            return true;
        }
        false
    }

    /// Gives a new hold to the first waiter; without one it is released again.
    pub(super) fn deliver(&self, hold: Arc<Hold>) {
        let mut state = self.state();
        state.driven = state.driven.saturating_sub(1);
        state.trouble = None;
        let waiter = loop {
            match state.waiters.pop_front() {
                Some(waiter) if waiter.tell.is_closed() => {}
                other => break other,
            }
        };
        state.settle_leavers();
        drop(state);
        match waiter {
            Some(waiter) => {
                let tenure = Tenure::first(hold, waiter.owner);
                drop(waiter.tell.send(Ok(tenure)));
            }
            None => drop(Tenure::first(hold, OwnerId::new("nobody"))),
        }
    }

    /// The client has been closed: nobody waits here from now on.
    pub(super) fn close(&self, error: &Error) {
        self.state().closed = Some(error.clone());
        self.fail_all(error);
    }

    /// A driver has ended without a word on its claim.
    pub(super) fn driver_gone(&self) {
        let mut state = self.state();
        state.driven = state.driven.saturating_sub(1);
    }

    /// A request of a driver is on its way, or has been answered.
    pub(super) fn count_unanswered(&self, one_more: bool) {
        let mut state = self.state();
        state.unanswered = match one_more {
            true => state.unanswered + 1,
            false => state.unanswered.saturating_sub(1),
        };
    }

    /// The caller that wants to hear of the withdrawal by a driver that has just been dismissed.
    pub(super) fn next_leaver(&self) -> Option<oneshot::Sender<bool>> {
        let mut state = self.state();
        let leaver = state.leavers.pop_front();
        state.settle_leavers();
        leaver
    }

    /// Tells every waiter that it cannot be done.
    pub(super) fn fail_all(&self, error: &Error) {
        let mut state = self.state();
        let waiters = std::mem::take(&mut state.waiters);
        // Whether their claims are withdrawn is not known.
        let leavers = std::mem::take(&mut state.leavers);
        drop(state);
        drop(leavers);
        for waiter in waiters {
            drop(waiter.tell.send(Err(error.clone())));
        }
        self.left.notify_waiters();
    }

    /// Whether there are more drivers than waiters; the driver that hears `true` must go.
    pub(super) fn dismiss_surplus(&self) -> bool {
        let mut state = self.state();
        state.waiters.retain(|waiter| !waiter.tell.is_closed());
        let surplus = state.driven as usize > state.waiters.len();
        if surplus {
            state.driven -= 1;
        }
        surplus
    }

    /// Whether a driver would be dismissed now.
    pub(super) fn has_surplus(&self) -> bool {
        self.state().surplus() > 0
    }

    /// Completes when a waiter may have left.
    pub(super) fn left(&self) -> tokio::sync::futures::Notified<'_> {
        self.left.notified()
    }

    /// Remembers what drivers run into, for waiters whose time is up meanwhile.
    pub(super) fn set_trouble(&self, trouble: Option<Error>) {
        self.state().trouble = trouble;
    }

    pub(super) fn trouble(&self) -> Option<Error> {
        self.state().trouble.clone()
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let state = self.state();
        let (live, driven) = (state.live, state.driven);
        let waiters = state.waiters.len();
        format!(
            "lane {:?}: {live} live, {driven} driven, {waiters} waiting",
            self.key.name
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many drivers there are for nobody.
    fn surplus(&self) -> usize {
        let driven = self.driven as usize;
        // Most often there are more waiters than drivers: not all of them need to be looked at.
        let waiting = self.waiters.iter();
        let waiting = waiting.filter(|waiter| !waiter.tell.is_closed());
        driven - waiting.take(driven).count()
    }

    /// A driver that has somebody to work for again withdraws nothing: what it is granted goes to that
    /// waiter, so the caller that left has definitely not got it.
    fn settle_leavers(&mut self) {
        let surplus = self.surplus();
        while self.leavers.len() > surplus {
            let leaver = self.leavers.pop_back();
            // The caller may have left.
            let _ = leaver.map(|leaver| leaver.send(true));
        }
    }
}

/// The right to one claim at the store. Dropping it frees the lane for the next one.
#[derive(Debug)]
pub(crate) struct Slot {
    lane: Arc<Lane>,
}

impl Slot {
    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.lane.engine
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.engine.is_ours() {
            self.engine.lanes.forget(self);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A forked child has copies of locks that nobody may ever unlock.
        if !self.lane.engine.is_ours() {
            return;
        }
        let mut state = self.lane.state();
        state.live = state.live.saturating_sub(1);
        let idle = state.live == 0 && state.waiters.is_empty();
        self.lane.staff(state);
        if idle && !self.lane.private {
            self.lane.engine.lanes.retire(&self.lane);
        }
    }
}

/// A caller's place in a lane. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Waiting {
    lane: Arc<Lane>,
    id: u64,
    told: Option<oneshot::Receiver<Result<Tenure>>>,
}

impl Waiting {
    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Waits for the hold or for an error. Cancel safe: what arrives stays for the next call.
    pub(super) async fn told(&mut self) -> Result<Tenure> {
        let gone = || Error::new(crate::ErrorKind::Internal, "a waiter was forgotten");
        let Some(told) = &mut self.told else {
            return Err(gone());
        };
        let outcome = told.await;
        self.told = None;
        outcome.map_err(|_| gone())?
    }

    /// Ends the wait.
    pub(super) fn end(mut self) -> End {
        let Some(mut told) = self.told.take() else {
            return End::Nothing;
        };
        told.close();
        let last = told.try_recv().ok();
        let mut state = self.leave();
        let unanswered = (state.unanswered as usize).min(state.surplus());
        let end = match last {
            Some(last) => End::Told(Box::new(last)),
            None if unanswered > state.leavers.len() => {
                let (tell, told) = oneshot::channel();
                state.leavers.push_back(tell);
                End::Unanswered(told)
            }
            None => End::Nothing,
        };
        drop(state);
        self.lane.left.notify_waiters();
        end
    }

    fn leave(&self) -> MutexGuard<'_, State> {
        let mut state = self.lane.state();
        state.waiters.retain(|waiter| waiter.id != self.id);
        state
    }
}

/// What a wait came to that was given up.
pub(super) enum End {
    /// What arrived in the last moment.
    Told(Box<Result<Tenure>>),
    /// Nothing.
    Nothing,
    /// Nothing, but a request that was made for it has not been answered. Hears `true` once it cannot
    /// take effect any more.
    Unanswered(oneshot::Receiver<bool>),
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.lane.engine.is_ours() {
            return;
        }
        if let Some(mut told) = self.told.take() {
            told.close();
            // A tenure that arrived is dropped here, and so passes on or goes back.
            drop(told.try_recv());
            drop(self.leave());
            self.lane.left.notify_waiters();
        }
    }
}
