//! One guard's turn of a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::hold::Phase;
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
    ended: bool,
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
    /// Held still, but the last renewal failed: if none succeeds before the deadline, it is lost.
    Suspect,
    /// Not held any more.
    Lost(LostReason),
}

impl Tenure {
    /// The first tenure of a hold.
    pub(super) fn first(hold: Arc<Hold>, owner: OwnerId) -> Self {
        let predecessor = hold.predecessor.clone();
        Self::start(hold, 0, owner, predecessor)
    }

    /// The tenure after this one, on the same hold.
    pub(super) fn next(&self, owner: OwnerId) -> Self {
        let predecessor = Predecessor {
            ending: Ending::Released,
            seq: self.hold.spi.seq,
            owner: self.owner.clone(),
        };
        Self::start(self.hold.clone(), self.local + 1, owner, Some(predecessor))
    }

    fn start(
        hold: Arc<Hold>,
        local: u64,
        owner: OwnerId,
        predecessor: Option<Predecessor>,
    ) -> Self {
        let since = hold.engine.clock.now();
        Self {
            hold,
            local,
            owner,
            since,
            predecessor,
            sequencer_taken: AtomicBool::new(false),
            ended: false,
        }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
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

    pub(crate) fn is_valid(&self) -> bool {
        // A forked child has a copy of the guard and no right to it.
        self.hold.engine.identity.info().pid == crate::ids::pid() && self.hold.is_valid()
    }

    pub(crate) fn status(&self) -> Status {
        match self.hold.lost_reason() {
            Some(reason) => Status::Lost(reason),
            None if self.hold.is_suspect() => Status::Suspect,
            None => Status::Held,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = self.hold.engine.clock.now();
        self.hold
            .deadline()
            .map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Gives it up and says whether it was still held.
    pub(crate) async fn release(mut self) -> Result<ReleaseReply> {
        self.ended = true;
        self.report();
        leave::release(&self).await
    }

    fn report(&self) {
        let held = self.hold.engine.clock.now().since(self.since);
        telemetry::released(&self.hold.spi.name, self.token(), held);
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !self.ended {
            self.ended = true;
            if self.hold.phase() == Phase::Held {
                self.report();
            }
            leave::leave(self);
        }
    }
}
