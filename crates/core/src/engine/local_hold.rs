//! One guard's turn of a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{Hold, leave};
use crate::store::{Ending, Predecessor, ReleaseReply};
use crate::{BootTime, LostReason, Mode, OwnerId, Result, Sequencer, Token, telemetry};

/// A hold in the hands of one owner. Dropping it gives it up in the background.
#[derive(Debug)]
pub(crate) struct Tenure {
    hold: Arc<Hold>,
    local: u64,
    owner: OwnerId,
    since: BootTime,
    predecessor: Option<Predecessor>,
    /// A sequencer was taken out: the hold must end at the store, so that `check` stays exact.
    sequencer_taken: AtomicBool,
    /// How many guards stand on it; at zero it is over, and nobody can enter any more.
    depth: AtomicU32,
}

/// How sure a holder can be, right now.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::Status;
/// let guard = clinch_core::Clinch::memory().lock("a").acquire().await?;
/// assert_eq!(guard.status(), Status::Held);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Held, and renewals arrive.
    Held,
    /// Held still, but the last renewal failed, or the store has lost sight of it: if no renewal
    /// succeeds before the deadline, it is lost.
    Suspect,
    /// Not held any more.
    Lost(LostReason),
}

impl Tenure {
    /// The first tenure of a hold.
    pub(super) fn first(hold: Arc<Hold>, owner: OwnerId) -> Self {
        let predecessor = hold.predecessor.clone();
        let since = hold.engine.clock.now();
        Self::start(hold, 0, owner, predecessor, since)
    }

    /// The tenure after this one, on the same hold.
    pub(super) fn next(&self, owner: OwnerId, now: BootTime) -> Self {
        let predecessor = Predecessor {
            ending: Ending::Released,
            seq: self.hold.spi.seq,
            owner: self.owner.clone(),
        };
        Self::start(
            self.hold.clone(),
            self.local + 1,
            owner,
            Some(predecessor),
            now,
        )
    }

    fn start(
        hold: Arc<Hold>,
        local: u64,
        owner: OwnerId,
        predecessor: Option<Predecessor>,
        since: BootTime,
    ) -> Self {
        Self {
            hold,
            local,
            owner,
            since,
            predecessor,
            sequencer_taken: AtomicBool::new(false),
            depth: AtomicU32::new(1),
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// When it began.
    pub(super) fn since(&self) -> BootTime {
        self.since
    }

    pub(super) fn local(&self) -> u64 {
        self.local
    }

    pub(crate) fn token(&self) -> Token {
        self.hold.token(self.local)
    }

    pub(crate) fn mode(&self) -> Mode {
        Mode::of(self.hold.units, self.hold.limit)
    }

    pub(crate) fn predecessor(&self) -> Option<&Predecessor> {
        self.predecessor.as_ref()
    }

    pub(crate) fn sequencer(&self) -> Sequencer {
        self.sequencer_taken.store(true, Ordering::Release);
        Sequencer::new(self.hold.spi.name.clone(), self.mode(), self.token())
    }

    pub(super) fn sequencer_was_taken(&self) -> bool {
        self.sequencer_taken.load(Ordering::Acquire)
    }

    /// Whether this process may use it: a forked child has a copy of the guard and no right to it.
    fn is_ours(&self) -> bool {
        self.hold.engine.is_ours()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.is_ours() && self.hold.is_valid()
    }

    pub(crate) async fn lost(&self) -> LostReason {
        match self.is_ours() {
            true => self.hold.lost().await,
            false => LostReason::Forked,
        }
    }

    pub(crate) fn status(&self) -> Status {
        if !self.is_ours() {
            return Status::Lost(LostReason::Forked);
        }
        match self.hold.lost_reason() {
            Some(reason) => Status::Lost(reason),
            None if self.hold.is_suspect() => Status::Suspect,
            None => Status::Held,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_ours() {
            return Duration::ZERO;
        }
        let now = self.hold.engine.clock.now();
        self.hold
            .deadline()
            .map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Its owner enters once more; `false` when it is over.
    pub(crate) fn enter(&self) -> bool {
        let inside = |depth: u32| (depth > 0).then(|| depth.saturating_add(1));
        self.depth
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, inside)
            .is_ok()
    }

    /// One guard leaves, and says whether it was still held.
    pub(crate) async fn exit(&self) -> Result<ReleaseReply> {
        if !self.is_ours() {
            return Ok(ReleaseReply::WasLost(LostReason::Forked));
        }
        if self.leave_depth() {
            let now = self.report();
            return leave::release(self, now).await;
        }
        // The owner is still inside, with another guard.
        Ok(match self.status() {
            Status::Lost(reason) => ReleaseReply::WasLost(reason),
            Status::Held | Status::Suspect => ReleaseReply::Released,
        })
    }

    /// One guard leaves without waiting.
    pub(crate) fn exit_in_background(&self) {
        if self.is_ours() && self.leave_depth() {
            let now = self.report();
            leave::leave(self, now);
        }
    }

    /// Whether that was the last guard.
    fn leave_depth(&self) -> bool {
        let leave = |depth: u32| depth.checked_sub(1);
        self.depth
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, leave)
            == Ok(1)
    }

    /// Tells of the end, and when it was.
    fn report(&self) -> BootTime {
        let now = self.hold.engine.clock.now();
        // A hold that was lost has been reported as such.
        if self.hold.deadline().is_some() {
            telemetry::released(&self.hold.spi.name, self.token(), now.since(self.since));
        }
        now
    }
}

impl Drop for Tenure {
    /// A tenure that never reached a guard: its waiter had gone.
    fn drop(&mut self) {
        self.exit_in_background();
    }
}
