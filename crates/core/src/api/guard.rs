//! The proof of a hold.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::{LocalHold, Status};
use crate::store::{Predecessor, ReleaseReply};
use crate::{LostReason, Mode, Name, OwnerId, Result, Sequencer, Token};

/// A held lock. Dropping it releases in the background; [`release`](Self::release) also tells
/// whether it was still held.
///
/// # Fairness
///
/// Who comes next is the matter of the [`Lock`](crate::Lock): in this process within the bounds of
/// [`HandOver`](crate::HandOver), otherwise at the head of the store's queue.
///
/// # Cancel safety
///
/// [`lost`](Self::lost) and [`run`](Self::run) can be dropped at any await; the lock stays held. A
/// [`release`](Self::release) that is dropped goes on in the background.
///
/// # Guarantees
///
/// [`is_valid`](Self::is_valid) compares the boot clock with a deadline that is counted from before
/// the last acknowledged request was sent: a process that was paused or suspended past its lease
/// reads `false` when it wakes up, with no message needed.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("orders/42").acquire().await?;
/// assert!(guard.is_valid());
/// let written = guard.run(async { "work that stops when the lock is lost" }).await;
/// assert!(written.is_ok());
/// assert!(guard.release().await?.was_held());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    local_hold: Arc<LocalHold>,
    /// Whether this guard has left; only a drop follows then.
    left: AtomicBool,
}

impl Guard {
    pub(super) fn new(local_hold: LocalHold) -> Self {
        Self {
            local_hold: Arc::new(local_hold),
            left: AtomicBool::new(false),
        }
    }

    /// Another guard of the same hold, unless that has ended.
    pub(super) fn again(local_hold: Arc<LocalHold>) -> Option<Self> {
        let left = AtomicBool::new(false);
        let entered = local_hold.reenter();
        entered.then(|| Self { local_hold, left })
    }

    pub(crate) fn local_hold(&self) -> &Arc<LocalHold> {
        &self.local_hold
    }

    /// The fencing token: hand it to the resource with every write.
    ///
    /// On a store without the capability `tokens` it is a number that names the hold, for
    /// [`Clinch::evict`](crate::Clinch::evict), and fences nothing: it does not rise.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let first = clinch.lock("a").acquire().await?;
    /// let old = first.token();
    /// first.release().await?;
    /// assert!(clinch.lock("a").acquire().await?.token() > old);
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn token(&self) -> Token {
        self.local_hold.token()
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        &self.local_hold.hold().store_hold.name
    }

    /// Who holds it.
    pub fn owner(&self) -> &OwnerId {
        self.local_hold.owner()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.local_hold.mode()
    }

    /// Whether it is held at this moment, by a look at the clock alone.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// for step in 0..3 {
    ///     assert!(guard.is_valid(), "lost before step {step}"); // cheap enough for every step
    /// }
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.local_hold.is_valid()
    }

    /// Held, held but not renewed lately, or lost.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use clinch_core::{LostReason, Status};
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert_eq!(guard.status(), Status::Held);
    /// clinch.evict("a", None).await?;
    /// assert_eq!(guard.status(), Status::Lost(LostReason::Evicted));
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn status(&self) -> Status {
        self.local_hold.status()
    }

    /// How long it stays valid without another renewal; zero when it is lost.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use std::time::Duration;
    /// let guard = clinch.lock("a").lease(Duration::from_secs(30)).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(10)); // enough for the next step
    /// clinch.evict("a", None).await?;
    /// assert!(guard.remaining().is_zero());
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn remaining(&self) -> Duration {
        self.local_hold.remaining()
    }

    /// Completes when it has been lost, with the reason, no later than its deadline and with no
    /// contact needed. Cancel safe.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", Some(guard.token())).await?;
    /// assert_eq!(guard.lost().await, clinch_core::LostReason::Evicted);
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn lost(&self) -> LostReason {
        self.local_hold.lost().await
    }

    /// How the hold before this one ended, where the store still knows: an unclean end means that
    /// its work may be half done.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let crashed = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", None).await?;
    /// let guard = clinch.lock("a").acquire().await?;
    /// let before = guard.predecessor().unwrap(); // its work may be half done
    /// assert!(before.ending.is_unclean() && before.seq == crashed.token().seq());
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn predecessor(&self) -> Option<&Predecessor> {
        self.local_hold.predecessor()
    }

    /// Name, mode and token in one printable string. A guard whose sequencer was taken out always
    /// ends at the store, so that [`check`](crate::Clinch::check) stays exact.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let guard = clinch.lock("orders/42").acquire().await?;
    /// let sequencer = guard.sequencer();
    /// assert_eq!(sequencer.to_string(), format!("x:{}:orders/42", guard.token()));
    /// assert!(clinch.check(&sequencer).await?.is_current());
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn sequencer(&self) -> Sequencer {
        self.local_hold.sequencer()
    }

    /// Gives it up and waits for the store's word: whether it was still held.
    ///
    /// If the reply to a first try is lost, a repeat that finds it released, expired or forgotten
    /// means that it was released: it was valid when it was given up.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it completes, the release goes on in the background. The same holds after an
    /// error: it is repeated until the store has heard, for a minute at least.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// use clinch_core::{LostReason, ReleaseReply};
    /// let guard = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", None).await?;
    /// let reply = guard.release().await?;
    /// assert_eq!(reply, ReleaseReply::WasLost(LostReason::Evicted)); // the work may not count
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn release(self) -> Result<ReleaseReply> {
        self.end().await
    }

    /// Leaves; nothing but a drop may follow.
    pub(super) async fn end(&self) -> Result<ReleaseReply> {
        match self.left.swap(true, Ordering::AcqRel) {
            false => self.local_hold.release().await,
            true => Ok(ReleaseReply::WasLost(LostReason::Released)),
        }
    }

    /// Runs a future for as long as the lock is held; when it is lost, the future is dropped and
    /// the reason returned.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// let (worked, _) = tokio::join!(
    ///     guard.run(std::future::pending::<()>()), // work without end
    ///     clinch.evict("a", None),
    /// );
    /// assert_eq!(worked, Err(clinch_core::LostReason::Evicted));
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LostReason> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(reason),
            output = future => Ok(output),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.local_hold.release_in_background();
        }
    }
}
