//! The end of a client.
//!
//! Each step of `close` decides under the same lock as what it ends: a claim is open and gets
//! withdrawn, or is refused; a waiter is in its lane and gets an error, or finds the lane closed; a
//! hold is in the renewal schedule and is lost, or is lost when it wants to get there.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::{Engine, drive, leave};
use crate::{Error, ErrorKind, Result};

/// The longest time that a clean end waits for the store.
const FAREWELL: Duration = Duration::from_secs(5);

/// Whether the client has been closed.
#[derive(Debug, Default)]
pub(super) struct Closing {
    closed: AtomicBool,
    changed: Notify,
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

    /// Ends everything: waiters get an error, holds are released, the session is closed.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        // In a forked child this would end the session of the parent.
        if !self.is_ours() || self.closing.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
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
        tokio::select! {
            biased;
            () = self.tasks.idle() => {}
            () = self.clock.sleep(self.settings.patience.min(FAREWELL)) => {}
        }
        self.renewer.stop();
        self.store.close().await
    }
}
