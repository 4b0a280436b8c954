//! The end of a client.
//!
//! Each step of `close` decides under the same lock as what it ends: a claim is open and gets
//! withdrawn, or is refused; a waiter is in its lane and gets an error, or finds the lane closed; a
//! hold is in the renewal schedule and is lost, or is lost when it wants to get there.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::{Engine, drive, leave};
use crate::{Error, ErrorKind, Result};

/// The longest time that a clean end waits for the store.
const FAREWELL: Duration = Duration::from_secs(5);

/// Whether the client has been closed, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Closing {
    closed: AtomicBool,
    changed: Notify,
    outcome: OnceLock<Result<()>>,
    ended: Notify,
}

impl Closing {
    /// The outcome, once there is one.
    async fn ended(&self) -> Result<()> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            ended.await;
        }
    }
}

/// The work of the end. Whatever becomes of it, those who wait for the end go on.
struct Ending(Arc<Engine>);

impl Drop for Ending {
    fn drop(&mut self) {
        let closing = &self.0.closing;
        closing.outcome.get_or_init(|| {
            Err(Error::new(
                ErrorKind::Internal,
                "the end of the client was not reached",
            ))
        });
        closing.ended.notify_waiters();
    }
}

impl Engine {
    /// Refuses what a closed client, or a copy of it in a forked child, cannot do.
    pub(crate) fn check_open(&self) -> Result<()> {
        if !self.is_ours() {
            return Err(Error::new(
                ErrorKind::Closed,
                "the client belongs to the process that this one was forked from",
            )
            .with_store(self.scheme())
            .with_advice("use clinch in a child that was started with exec"));
        }
        match self.closing.closed.load(Ordering::Acquire) {
            true => Err(self.closed_error().with_advice("connect again")),
            false => Ok(()),
        }
    }

    /// Whether this process made the client: a forked child has a copy of it and no right to it, nor
    /// may it touch a lock of it, since the thread that held it at the fork is not there.
    pub(crate) fn is_ours(&self) -> bool {
        self.identity.info().pid == crate::ids::pid()
    }

    pub(super) fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Closed, "the client was closed").with_store(self.scheme())
    }

    /// The output of a future, or `None` as soon as the client is closed.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        // Most end at the first poll: nothing is set up before it is needed.
        let first = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = first {
            return Some(output);
        }
        let mut closed = std::pin::pin!(self.closing.changed.notified());
        closed.as_mut().enable();
        if self.closing.closed.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            biased;
            output = future => Some(output),
            () = closed => None,
        }
    }

    /// Ends everything: waiters get an error, holds are released, the session is closed. All calls wait
    /// for the same end, which is reached although they are dropped.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        // In a forked child this would end the session of the parent.
        if !self.is_ours() {
            return Ok(());
        }
        if !self.closing.closed.swap(true, Ordering::AcqRel) {
            self.end_claims();
            let engine = self.clone();
            let ending = async move { Ending(engine).0.end_session().await };
            if crate::keeper::spawn(ending).is_err() {
                // Without a keeper the caller must do.
                Ending(self.clone()).0.end_session().await;
            }
        }
        self.closing.ended().await
    }

    /// From here on nothing is valid, and nobody waits.
    fn end_claims(self: &Arc<Self>) {
        for claim in self.open.close() {
            drive::withdraw_in_background(self, claim);
        }
        let closed = self.closed_error();
        for lane in self.lanes.close() {
            lane.close(&closed);
        }
        for hold in self.renewer.close() {
            leave::end_closed(&hold);
        }
        self.closing.changed.notify_waiters();
    }

    /// Once the work that is left has been done, or has had its time.
    async fn end_session(&self) {
        tokio::select! {
            biased;
            () = self.tasks.idle() => {}
            () = self.clock.sleep(self.settings.patience.min(FAREWELL)) => {}
        }
        self.renewer.stop();
        let outcome = self.store.close().await;
        self.closing.outcome.get_or_init(|| outcome);
    }
}
