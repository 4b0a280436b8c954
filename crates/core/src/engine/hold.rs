//! A grant of the store, and the deadline until which it is valid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::renewer::DueKey;
use super::slot::Slot;
use super::{Engine, LocalQueue, valid_for};
use crate::store::{self, Claim, Grant, Predecessor};
use crate::telemetry;
use crate::{BootTime, LostReason, Token};

/// A hold at the store. By hand-over, several [`LocalHold`](super::LocalHold)s use it in turn.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    /// How requests to the store name this hold.
    pub(crate) store_hold: store::Hold,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) predecessor: Option<Predecessor>,
    /// When the store's grant reached this process; the bounds on hand-over count from here.
    pub(crate) granted_at: BootTime,
    /// Number of local waiters at the first hand-over; each of them gets one turn.
    round_size: OnceLock<u64>,
    /// End of the `max_hold` time, if the claim has one.
    max_hold_deadline: Option<BootTime>,
    /// Valid until then, in boot nanoseconds; 0 once it has ended. `is_valid` reads only this and the
    /// clock, without a lock.
    deadline: AtomicU64,
    /// When it became suspect, in boot nanoseconds: a renewal failed, or the store reported a suspicion.
    /// 0 once a renewal that was sent later has been acknowledged.
    suspect_since: AtomicU64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Given back when the hold ends.
    slot: Option<Slot>,
    /// Its place in the renewal schedule.
    due: Option<DueKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    /// The holder has released it; the store has not acknowledged that yet.
    Releasing,
    Lost(LostReason),
}

impl Hold {
    /// Whether it may be handed over once more, after `handed_over` hand-overs, with `waiting` local
    /// waiters.
    pub(super) fn may_stay_local(&self, handed_over: u64, waiting: usize, now: BootTime) -> bool {
        let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        let round_size = *self.round_size.get_or_init(|| waiting);
        let quantum = self.engine.settings.hand_over.quantum;
        handed_over < round_size || now.since(self.granted_at) < quantum
    }

    /// A grant whose lease counts from `sent`. If the client has been closed, it is lost and released at
    /// once.
    pub(crate) fn new(slot: Slot, claim: &Claim, grant: Grant, sent: BootTime) -> Arc<Self> {
        let engine = slot.engine().clone();
        let granted_at = engine.clock.now();
        let max_hold_deadline = slot
            .local_queue()
            .spec()
            .max_hold
            .map(|span| granted_at + span);
        let deadline = capped(sent + valid_for(claim.lease), max_hold_deadline);
        let hold = Arc::new(Self {
            max_hold_deadline,
            store_hold: store::Hold {
                name: claim.name.clone(),
                request: claim.request,
                seq: grant.seq,
            },
            units: claim.units,
            limit: claim.limit,
            lease: claim.lease,
            predecessor: grant.predecessor,
            granted_at,
            round_size: OnceLock::new(),
            deadline: AtomicU64::new(deadline.as_nanos()),
            suspect_since: AtomicU64::new(0),
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
        // Sequence numbers beyond 51 bits break the contract of stores; the largest token is then the
        // best that can be said.
        Token::new(self.store_hold.seq, local)
            .or_else(|| Token::new(crate::token::MAX_SEQ, crate::token::MAX_LOCAL))
            .unwrap_or_else(Token::zero)
    }

    /// The end of its validity; `None` once it has ended.
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
        self.suspect_since.load(Ordering::Acquire) != 0
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Why it was lost, if it was. Past the deadline, this call marks it lost.
    pub(crate) fn lost_reason(self: &Arc<Self>) -> Option<LostReason> {
        self.check_deadline();
        match self.phase() {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Releasing => None,
        }
    }

    /// Completes when it has been lost: no later than its deadline, whether or not the store answers.
    pub(crate) async fn lost(self: &Arc<Self>) -> LostReason {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.lost_reason() {
                return reason;
            }
            let Some(deadline) = self.deadline() else {
                // Released by its own holder: it cannot be lost any more.
                return std::future::pending().await;
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = self.engine.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// The local queue that it came from, while it is held.
    pub(super) fn local_queue(&self) -> Option<Arc<LocalQueue>> {
        self.state()
            .slot
            .as_ref()
            .map(|slot| slot.local_queue().clone())
    }

    /// The renewal of `sent` has been acknowledged. `false` if that came too late.
    pub(super) fn extend(self: &Arc<Self>, sent: BootTime) -> bool {
        self.check_deadline();
        let state = self.state();
        if state.phase != Phase::Held {
            return false;
        }
        let deadline = capped(sent + valid_for(self.lease), self.max_hold_deadline);
        // An acknowledgement that overtook a newer one must not shorten it.
        self.deadline
            .fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        // A renewal that was sent before the suspicion does not clear it.
        let cleared =
            |suspect_since| (suspect_since != 0 && suspect_since <= sent.as_nanos()).then_some(0);
        let _ = self
            .suspect_since
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, cleared);
        true
    }

    /// Whether its deadline has reached the `max_hold` time, so that no renewal can extend it.
    pub(super) fn at_max_hold(&self) -> bool {
        self.max_hold_deadline
            .is_some_and(|cap| self.deadline().is_some_and(|deadline| deadline >= cap))
    }

    /// The hold may have ended at the store; a later renewal that is acknowledged clears this.
    pub(super) fn mark_suspect(&self) {
        let now = self.engine.clock.now().as_nanos().max(1);
        self.suspect_since.store(now, Ordering::Release);
    }

    /// Marks it lost if its deadline has passed.
    pub(super) fn check_deadline(self: &Arc<Self>) {
        // The clock is read before the deadline: a renewal between the two must count.
        let now = self.engine.clock.now();
        let Some(deadline) = self.deadline() else {
            return;
        };
        if now >= deadline {
            let capped = self
                .max_hold_deadline
                .is_some_and(|cap| now >= cap && cap <= deadline);
            self.lose(if capped {
                LostReason::MaxHold
            } else {
                LostReason::Unrenewed
            });
        }
    }

    /// The hold has ended without a release by its holder. `false` if it had ended before.
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
        telemetry::lost(&self.store_hold.name, self.token(0), reason);
        // Lets the local queue make the next claim.
        drop(slot);
        true
    }

    /// The holder releases it: it is not valid from now on. `Err` if it had been lost before.
    pub(super) fn begin_release(self: &Arc<Self>) -> Result<(), LostReason> {
        self.check_deadline();
        let mut state = self.state();
        match state.phase {
            Phase::Lost(reason) => return Err(reason),
            Phase::Releasing => return Ok(()),
            Phase::Held => state.phase = Phase::Releasing,
        }
        self.deadline.store(0, Ordering::Release);
        let due = state.due.take();
        drop(state);
        self.engine.renewer.remove(due);
        Ok(())
    }

    /// The store has acknowledged the release, or the lease has passed: frees the slot.
    pub(super) fn finish_release(&self) {
        let slot = self.state().slot.take();
        drop(slot);
    }

    pub(super) fn set_due(&self, due: DueKey) -> Result<Option<DueKey>, ()> {
        let mut state = self.state();
        match state.phase {
            Phase::Held => Ok(state.due.replace(due)),
            Phase::Releasing | Phase::Lost(_) => Err(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn capped(deadline: BootTime, cap: Option<BootTime>) -> BootTime {
    cap.map_or(deadline, |cap| deadline.min(cap))
}
