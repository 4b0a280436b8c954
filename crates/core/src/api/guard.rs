//! The proof of a hold.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::{LocalHold, Status};
use crate::store::{Predecessor, ReleaseReply};
use crate::{Error, LostReason, Mode, Name, OwnerId, Result, Sequencer, Token};

/// A held lock. Dropping it releases in the background; [`release`](Self::release) also reports
/// whether it was still held.
///
/// # Fairness
///
/// The next holder is a waiter of this process, within the bounds of [`HandOver`](crate::HandOver),
/// or the head of the store's queue; see [`Lock`](crate::Lock).
///
/// # Cancel safety
///
/// [`lost`](Self::lost) and [`run`](Self::run) can be dropped at any await; the lock stays held. A
/// [`release`](Self::release) that is dropped continues in the background.
///
/// # Guarantees
///
/// [`is_valid`](Self::is_valid) compares the boot clock with a deadline. The deadline counts from
/// before the last acknowledged request was sent, so a process that was paused or suspended past its
/// lease reads `false` when it resumes, without any message.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let guard = clinch.lock("orders/42").acquire().await?;
/// assert!(guard.is_valid());
/// let work = async { Ok::<_, clinch::Error>("stops when the lock is lost") };
/// assert!(guard.run(work).await.is_ok());
/// assert!(guard.release().await?.was_held());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    local_hold: Arc<LocalHold>,
    /// Set by the first release; a drop after it does nothing.
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

    /// The fencing token: send it to the resource with every write.
    ///
    /// On a store without the capability `tokens` it only identifies the hold, for
    /// [`Clinch::evict`](crate::Clinch::evict). It does not rise there and cannot fence.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let first = clinch.lock("a").acquire().await?;
    /// let old = first.token();
    /// first.release().await?;
    /// assert!(clinch.lock("a").acquire().await?.token() > old);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn token(&self) -> Token {
        self.local_hold.token()
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        &self.local_hold.hold().store_hold.name
    }

    /// The owner.
    pub fn owner(&self) -> &OwnerId {
        self.local_hold.owner()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.local_hold.mode()
    }

    /// Whether it is held at this moment. Reads the clock only, without I/O.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// for step in 0..3 {
    ///     assert!(guard.is_valid(), "lost before step {step}"); // cheap enough for every step
    /// }
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.local_hold.is_valid()
    }

    /// Held, held but not renewed lately, or lost.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::{LostReason, Status};
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert_eq!(guard.status(), Status::Held);
    /// clinch.evict("a", None).await?;
    /// assert_eq!(guard.status(), Status::Lost(LostReason::Evicted));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn status(&self) -> Status {
        self.local_hold.status()
    }

    /// How long it stays valid without another renewal; zero when it is lost.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use std::time::Duration;
    /// let guard = clinch.lock("a").lease(Duration::from_secs(30)).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(10)); // enough for the next step
    /// clinch.evict("a", None).await?;
    /// assert!(guard.remaining().is_zero());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn remaining(&self) -> Duration {
        self.local_hold.remaining()
    }

    /// Completes with the reason when the lock is lost: at its deadline at the latest, even without
    /// contact to the store. Cancel safe.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", Some(guard.token())).await?;
    /// assert_eq!(guard.lost().await, clinch::LostReason::Evicted);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn lost(&self) -> LostReason {
        self.local_hold.lost().await
    }

    /// How the hold before this one ended, if the store has a record of it. After an unclean end its
    /// work may be half done.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let crashed = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", None).await?;
    /// let guard = clinch.lock("a").acquire().await?;
    /// let before = guard.predecessor().unwrap(); // its work may be half done
    /// assert!(before.ending.is_unclean() && before.seq == crashed.token().seq());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn predecessor(&self) -> Option<&Predecessor> {
        self.local_hold.predecessor()
    }

    /// Name, mode and token in one printable string. Afterwards this guard is always released at the
    /// store and not handed over, so that [`check`](crate::Clinch::check) stays exact.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let guard = clinch.lock("orders/42").acquire().await?;
    /// let sequencer = guard.sequencer();
    /// assert_eq!(sequencer.to_string(), format!("x:{}:orders/42", guard.token()));
    /// assert!(clinch.check(&sequencer).await?.is_current());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn sequencer(&self) -> Sequencer {
        self.local_hold.sequencer()
    }

    /// Releases the lock, and reports whether it was still held according to the store.
    ///
    /// If the reply to the first request is lost, and the repeated one finds the hold released,
    /// expired or unknown, the reply is `Released`: the hold was valid when it was given up.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before it completes, or fails, the release is repeated in the background until
    /// the store has acknowledged it, for at least a minute.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::{LostReason, ReleaseReply};
    /// let guard = clinch.lock("a").acquire().await?;
    /// clinch.evict("a", None).await?;
    /// let reply = guard.release().await?;
    /// assert_eq!(reply, ReleaseReply::WasLost(LostReason::Evicted)); // the work may not count
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn release(self) -> Result<ReleaseReply> {
        self.end().await
    }

    /// Releases once; only a drop may follow.
    pub(super) async fn end(&self) -> Result<ReleaseReply> {
        match self.left.swap(true, Ordering::AcqRel) {
            false => self.local_hold.release().await,
            true => Ok(ReleaseReply::WasLost(LostReason::Released)),
        }
    }

    /// Runs work that can fail, while the lock is held. If the lock is lost first, the future is
    /// dropped and the result is an error of kind [`Lost`](crate::ErrorKind::Lost);
    /// [`Error::lost_reason`](crate::Error::lost_reason) has the reason.
    ///
    /// The loss and the failure of the work are one `Result`, so a single `?` reports both. The error
    /// type needs `From<clinch::Error>`, as for `?` after [`acquire`](crate::Lock::acquire).
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// async fn write(token: clinch::Token) -> clinch::Result<&'static str> {
    ///     Ok("written")
    /// }
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert_eq!(guard.run(write(guard.token())).await?, "written");
    /// clinch.evict("a", None).await?;
    /// let error = guard.run(write(guard.token())).await.unwrap_err();
    /// assert_eq!(error.lost_reason(), Some(clinch::LostReason::Evicted));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F, T, E>(&self, work: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        match self.run_until_lost(work).await {
            Ok(result) => result,
            Err(reason) => Err(self.lost_error(reason).into()),
        }
    }

    /// Runs any future while the lock is held. If the lock is lost first, the future is dropped and
    /// the result is the reason. For work that returns a `Result`, [`run`](Self::run) is safer: here
    /// its `Result` is inside another one.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let guard = clinch.lock("a").acquire().await?;
    /// let (worked, _) = tokio::join!(
    ///     guard.run_until_lost(std::future::pending::<()>()), // never completes
    ///     clinch.evict("a", None),
    /// );
    /// assert_eq!(worked, Err(clinch::LostReason::Evicted));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, LostReason> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(reason),
            output = future => Ok(output),
        }
    }

    pub(super) fn lost_error(&self, reason: LostReason) -> Error {
        let engine = &self.local_hold.hold().engine;
        engine.explain(reason.into(), self.name())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.local_hold.release_in_background();
        }
    }
}
