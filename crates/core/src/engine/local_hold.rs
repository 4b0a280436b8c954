//! One owner's use of a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{Hold, release};
use crate::store::{Ending, Predecessor, ReleaseReply};
use crate::{BootTime, LostReason, Mode, OwnerId, Result, Sequencer, Token, telemetry};

/// One owner's use of a hold. Dropping it releases in the background.
#[derive(Debug)]
pub(crate) struct LocalHold {
    hold: Arc<Hold>,
    /// Number of hand-overs before this use: the local part of its token.
    local: u64,
    owner: OwnerId,
    since: BootTime,
    predecessor: Option<Predecessor>,
    /// A sequencer was taken: the hold must end at the store, so that `check` stays exact.
    sequencer_taken: AtomicBool,
    /// Number of guards that share it. At zero it has ended, and no guard can be added.
    depth: AtomicU32,
}

/// The state of a hold, right now.
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
    /// Still held, but the last renewal failed, or the store reported a suspicion. If no renewal
    /// succeeds before the deadline, it is lost.
    Suspect,
    /// Not held any more.
    Lost(LostReason),
}

impl LocalHold {
    /// The first use of a hold.
    pub(super) fn first(hold: Arc<Hold>, owner: OwnerId) -> Self {
        let predecessor = hold.predecessor.clone();
        let since = hold.engine.clock.now();
        Self::new(hold, 0, owner, predecessor, since)
    }

    /// The next use of the same hold, after a hand-over.
    pub(super) fn next(&self, owner: OwnerId, now: BootTime) -> Self {
        let predecessor = Predecessor {
            ending: Ending::Released,
            seq: self.hold.store_hold.seq,
            owner: self.owner.clone(),
        };
        Self::new(
            self.hold.clone(),
            self.local + 1,
            owner,
            Some(predecessor),
            now,
        )
    }

    fn new(
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

    /// When this use began.
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
        Sequencer::new(self.hold.store_hold.name.clone(), self.mode(), self.token())
    }

    pub(super) fn sequencer_was_taken(&self) -> bool {
        self.sequencer_taken.load(Ordering::Acquire)
    }

    /// Whether this process made the client: the copy of a guard in a forked child is not valid.
    fn is_own_process(&self) -> bool {
        self.hold.engine.is_own_process()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.is_own_process() && self.hold.is_valid()
    }

    pub(crate) async fn lost(&self) -> LostReason {
        match self.is_own_process() {
            true => self.hold.lost().await,
            false => LostReason::Forked,
        }
    }

    pub(crate) fn status(&self) -> Status {
        if !self.is_own_process() {
            return Status::Lost(LostReason::Forked);
        }
        match self.hold.lost_reason() {
            Some(reason) => Status::Lost(reason),
            None if self.hold.is_suspect() => Status::Suspect,
            None => Status::Held,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_own_process() {
            return Duration::ZERO;
        }
        let now = self.hold.engine.clock.now();
        self.hold
            .deadline()
            .map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Adds a guard of the same owner; `false` if the use has ended.
    pub(crate) fn reenter(&self) -> bool {
        let more = |depth: u32| (depth > 0).then(|| depth.saturating_add(1));
        self.depth
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// Ends one guard. The last one releases the hold and waits for the store.
    pub(crate) async fn release(&self) -> Result<ReleaseReply> {
        if !self.is_own_process() {
            return Ok(ReleaseReply::WasLost(LostReason::Forked));
        }
        if self.remove_guard() {
            let now = self.report();
            return release::release(self, now).await;
        }
        // The owner still has another guard.
        Ok(match self.status() {
            Status::Lost(reason) => ReleaseReply::WasLost(reason),
            Status::Held | Status::Suspect => ReleaseReply::Released,
        })
    }

    /// Ends one guard without waiting for the store.
    pub(crate) fn release_in_background(&self) {
        if self.is_own_process() && self.remove_guard() {
            let now = self.report();
            release::release_without_waiting(self, now);
        }
    }

    /// Removes one guard; `true` if it was the last.
    fn remove_guard(&self) -> bool {
        let less = |depth: u32| depth.checked_sub(1);
        self.depth
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
            == Ok(1)
    }

    /// Records the release in telemetry; returns its time.
    fn report(&self) -> BootTime {
        let now = self.hold.engine.clock.now();
        // A loss has been recorded already.
        if self.hold.deadline().is_some() {
            telemetry::released(
                &self.hold.store_hold.name,
                self.token(),
                now.since(self.since),
            );
        }
        now
    }
}

impl Drop for LocalHold {
    /// Only needed if it never reached a guard, because its waiter was dropped.
    fn drop(&mut self) {
        self.release_in_background();
    }
}
