//! Closes a client.
//!
//! Each step of `close` takes the same lock as what it ends, so there is no gap:
//! - a claim is registered and gets withdrawn, or is refused when it registers;
//! - a waiter is in its local queue and gets an error, or finds the queue closed;
//! - a hold is in the renewal schedule and is lost, or is lost when it is scheduled.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::{Engine, release, withdraw};
use crate::{Error, ErrorKind, Result};

/// Longest wait for background work before the session is closed.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Whether the client has been closed, and with which outcome.
#[derive(Debug, Default)]
pub(super) struct Closing {
    closed: AtomicBool,
    changed: Notify,
    outcome: OnceLock<Result<()>>,
    /// Notified once there is an outcome.
    finished: Notify,
}

impl Closing {
    /// Waits for the outcome.
    async fn outcome(&self) -> Result<()> {
        loop {
            let mut finished = std::pin::pin!(self.finished.notified());
            finished.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            finished.await;
        }
    }
}

/// The task that closes the session. If it is dropped, callers of `close` get an error.
struct CloseTask(Arc<Engine>);

impl Drop for CloseTask {
    fn drop(&mut self) {
        let closing = &self.0.closing;
        closing.outcome.get_or_init(|| {
            Err(Error::new(
                ErrorKind::Internal,
                "the client was not closed completely",
            ))
        });
        closing.finished.notify_waiters();
    }
}

impl Engine {
    /// An error if the client has been closed, or if this is a copy of it in a forked child.
    pub(crate) fn check_open(&self) -> Result<()> {
        if !self.is_own_process() {
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

    /// Whether this process made the client. A forked child has a copy that it must not use, not even
    /// its mutexes: the thread that held one at the fork does not exist in the child.
    pub(crate) fn is_own_process(&self) -> bool {
        self.identity.info().pid == crate::ids::pid()
    }

    pub(super) fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Closed, "the client was closed").with_store(self.scheme())
    }

    /// The output of a future, or `None` as soon as the client has been closed.
    pub(crate) async fn unless_closed<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        // Fast path: many futures are ready at the first poll.
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
    /// for the same outcome. The work continues if they are dropped.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        // In a forked child this would end the session of the parent.
        if !self.is_own_process() {
            return Ok(());
        }
        if !self.closing.closed.swap(true, Ordering::AcqRel) {
            self.end_claims();
            let engine = self.clone();
            let closing = async move { CloseTask(engine).0.end_session().await };
            if crate::keeper::spawn(closing).is_err() {
                // Without a keeper, the caller does the work.
                CloseTask(self.clone()).0.end_session().await;
            }
        }
        self.closing.outcome().await
    }

    /// After this call no hold is valid, and no caller waits.
    fn end_claims(self: &Arc<Self>) {
        for claim in self.open_claims.close() {
            withdraw::withdraw_in_background(self, claim);
        }
        let closed = self.closed_error();
        for local_queue in self.local_queues.close() {
            local_queue.close(&closed);
        }
        for hold in self.renewer.close() {
            release::lose_closed(&hold);
        }
        self.closing.changed.notify_waiters();
    }

    /// Waits for background work, within limits, then closes the session at the store.
    async fn end_session(&self) {
        tokio::select! {
            biased;
            () = self.tasks.idle() => {}
            () = self.clock.sleep(self.settings.patience.min(MAX_CLOSE_WAIT)) => {}
        }
        self.renewer.stop();
        let outcome = self.store.close().await;
        self.closing.outcome.get_or_init(|| outcome);
    }
}
