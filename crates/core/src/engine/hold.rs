//! A grant of the store, with the deadline up to which this process may rely on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::lane::{Lane, Slot};
use super::renew::DueKey;
use super::{Engine, valid_for};
use crate::store::{self, Claim, Grant, Predecessor};
use crate::telemetry;
use crate::{BootTime, LostReason, Token};

/// A hold at the store. One or, by hand-over, several tenures in turn rely on it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    pub(crate) spi: store::Hold,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) predecessor: Option<Predecessor>,
    /// When the store's grant reached this process: hand-over is bounded from here.
    pub(crate) granted: BootTime,
    /// How many waited in this process at the first hand-over: they make up a round.
    round: OnceLock<u64>,
    /// When its longest time is over, if it has one.
    cap: Option<BootTime>,
    /// Until when it is valid, in boot nanoseconds; 0 once it has ended. Read without the lock: this
    /// is all that `is_valid` looks at, besides the clock.
    deadline: AtomicU64,
    /// When it came into doubt, in boot nanoseconds: a renewal failed, or the store said so. 0 once a
    /// renewal that was sent later has been acknowledged.
    doubted: AtomicU64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The process's right to a claim in the lane; given back when the hold ends.
    slot: Option<Slot>,
    /// Its place in the renewal schedule.
    due: Option<DueKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    /// The holder has given it up; the store may not know yet.
    Leaving,
    Lost(LostReason),
}

impl Hold {
    /// Whether it may be handed over once more after so many hand-overs, with so many waiting here.
    pub(super) fn may_stay(&self, handed_over: u64, waiting: usize, now: BootTime) -> bool {
        let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        let round = *self.round.get_or_init(|| waiting);
        let quantum = self.engine.settings.hand_over.quantum;
        handed_over < round || now.since(self.granted) < quantum
    }

    /// A grant whose claim was sent, and later acknowledged, at `sent`. It is lost and released at
    /// once if the client has been closed.
    pub(crate) fn new(slot: Slot, claim: &Claim, grant: Grant, sent: BootTime) -> Arc<Self> {
        let engine = slot.engine().clone();
        let granted = engine.clock.now();
        let cap = slot.lane().key().max_hold.map(|span| granted + span);
        let deadline = capped(sent + valid_for(claim.lease), cap);
        let hold = Arc::new(Self {
            cap,
            spi: store::Hold {
                name: claim.name.clone(),
                request: claim.request,
                seq: grant.seq,
            },
            units: claim.units,
            limit: claim.limit,
            lease: claim.lease,
            predecessor: grant.predecessor,
            granted,
            round: OnceLock::new(),
            deadline: AtomicU64::new(deadline.as_nanos()),
            doubted: AtomicU64::new(0),
            state: Mutex::new(State {
                phase: Phase::Held,
                slot: Some(slot),
                due: None,
            }),
            changed: Notify::new(),
            engine,
        });
        hold.engine.renewer.add(&hold, sent);
        hold
    }

    /// A token of this hold.
    pub(crate) fn token(&self, local: u64) -> Token {
        // A store that hands out more than 51 bits breaks its contract; the largest token keeps
        // the order as long as anything can.
        Token::new(self.spi.seq, local)
            .or_else(|| Token::new(crate::token::MAX_SEQ, crate::token::MAX_LOCAL))
            .unwrap_or_else(Token::zero)
    }

    /// Until when it is valid; `None` once it has ended.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<BootTime> {
        match self.deadline.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(BootTime::from_nanos(nanos)),
        }
    }

    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.is_valid_at(self.engine.clock.now())
    }

    #[inline]
    pub(super) fn is_valid_at(&self, now: BootTime) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.doubted.load(Ordering::Acquire) != 0
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Why it was lost, if it was. Reading it past the deadline makes it lost.
    pub(crate) fn lost_reason(self: &Arc<Self>) -> Option<LostReason> {
        self.check_deadline();
        match self.phase() {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Leaving => None,
        }
    }

    /// Completes when it has been lost, no later than its deadline, with no contact needed.
    pub(crate) async fn lost(self: &Arc<Self>) -> LostReason {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.lost_reason() {
                return reason;
            }
            let Some(deadline) = self.deadline() else {
                // Given up by its own holder: nothing is left to lose.
                return std::future::pending().await;
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = self.engine.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// The lane of this process that it came from, while it is held.
    pub(super) fn lane(&self) -> Option<Arc<Lane>> {
        self.state().slot.as_ref().map(|slot| slot.lane().clone())
    }

    /// A renewal that was sent at `sent` has been acknowledged. `false` when it came too late.
    pub(super) fn extend(self: &Arc<Self>, sent: BootTime) -> bool {
        self.check_deadline();
        let state = self.state();
        if state.phase != Phase::Held {
            return false;
        }
        let deadline = capped(sent + valid_for(self.lease), self.cap);
        // An acknowledgement that overtook a newer one must not shorten it.
        self.deadline
            .fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        // What was sent before the doubt arose says nothing about it.
        let settled = |doubted| (doubted != 0 && doubted <= sent.as_nanos()).then_some(0);
        let _ = self
            .doubted
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, settled);
        true
    }

    /// Whether it may not be renewed beyond what it has.
    pub(super) fn is_capped(&self) -> bool {
        self.cap
            .is_some_and(|cap| self.deadline().is_some_and(|deadline| deadline >= cap))
    }

    /// It may be gone already: until a renewal is acknowledged nobody knows.
    pub(super) fn suspect(&self) {
        let now = self.engine.clock.now().as_nanos().max(1);
        self.doubted.store(now, Ordering::Release);
    }

    /// Marks it lost if its deadline has passed.
    pub(super) fn check_deadline(self: &Arc<Self>) {
        // The clock first: a renewal that is acknowledged between the two must not be overlooked.
        let now = self.engine.clock.now();
        let Some(deadline) = self.deadline() else {
            return;
        };
        if now >= deadline {
            let capped = self.cap.is_some_and(|cap| now >= cap && cap <= deadline);
            self.lose(if capped {
                LostReason::MaxHold
            } else {
                LostReason::Unrenewed
            });
        }
    }

    /// It is not held any more, and not because its holder said so. `false` when it had ended before.
    pub(crate) fn lose(self: &Arc<Self>, reason: LostReason) -> bool {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return false;
        }
        state.phase = Phase::Lost(reason);
        self.deadline.store(0, Ordering::Release);
        let slot = state.slot.take();
        let due = state.due.take();
        drop(state);
        self.engine.renewer.remove(due);
        self.changed.notify_waiters();
        telemetry::lost(&self.spi.name, self.token(0), reason);
        // Frees the lane for the next local claim.
        drop(slot);
        true
    }

    /// The holder gives it up: it is not valid from now on. `Err` when it had been lost before.
    pub(super) fn begin_leaving(self: &Arc<Self>) -> Result<(), LostReason> {
        self.check_deadline();
        let mut state = self.state();
        match state.phase {
            Phase::Lost(reason) => return Err(reason),
            Phase::Leaving => return Ok(()),
            Phase::Held => state.phase = Phase::Leaving,
        }
        self.deadline.store(0, Ordering::Release);
        let due = state.due.take();
        drop(state);
        self.engine.renewer.remove(due);
        Ok(())
    }

    /// The store knows, or its lease has passed: the lane is free for the next claim.
    pub(super) fn finish_leaving(&self) {
        let slot = self.state().slot.take();
        drop(slot);
    }

    pub(super) fn set_due(&self, due: DueKey) -> Result<Option<DueKey>, ()> {
        let mut state = self.state();
        match state.phase {
            Phase::Held => Ok(state.due.replace(due)),
            Phase::Leaving | Phase::Lost(_) => Err(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn capped(deadline: BootTime, cap: Option<BootTime>) -> BootTime {
    cap.map_or(deadline, |cap| deadline.min(cap))
}
