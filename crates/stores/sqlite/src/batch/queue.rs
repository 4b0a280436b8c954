//! Operations that wait for a transaction.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use clinch_core::Result;
use tokio::sync::oneshot;

use crate::connection::Database;
use crate::error::{Fail, Step, no_answer};
use crate::transaction::Tx;

/// An operation that waits for a transaction.
pub(crate) trait Job: Send {
    /// Runs inside a transaction; again, if that one had to be rolled back.
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()>;
    /// Answers the caller, after the commit or with the error that prevented it.
    fn done(self: Box<Self>, outcome: Result<()>);
    /// Longest wait for the writer's lock before the job is tried without it; `None` if it needs a
    /// transaction.
    fn lock_wait(&self) -> Option<Duration> {
        None
    }
    /// Runs without a transaction; `false` if it cannot.
    fn run_without_lock(&mut self, _database: &mut Database) -> bool {
        false
    }
}

pub(crate) type Jobs = Vec<Box<dyn Job>>;

/// The jobs that wait, and what the writer thread has to do.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<Box<dyn Job>>,
    /// The writer thread runs the jobs.
    pub(super) drain: bool,
    /// The writer thread cleans up.
    pub(super) cleanup: bool,
    /// No more jobs are taken; the writer thread ends when it has run those that are left.
    pub(super) closed: bool,
}

impl Queue {
    /// Puts an operation at the end.
    pub(super) fn add<T: Send + 'static>(
        &mut self,
        step: impl FnMut(&mut Tx<'_>) -> Step<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (reply, answer) = Reply::new();
        self.jobs.push_back(Box::new(Call { step, reply }));
        answer
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({} jobs)", self.jobs.len())
    }
}

/// The reply of a job, kept until the commit.
pub(crate) struct Reply<T> {
    value: Option<Result<T>>,
    sender: oneshot::Sender<Result<T>>,
}

impl<T> Reply<T> {
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<T>>) {
        let (sender, answer) = oneshot::channel();
        let reply = Self {
            value: None,
            sender,
        };
        (reply, answer)
    }

    /// Keeps the result of a step. An error of SQLite is returned: it fails the transaction.
    pub(crate) fn keep(&mut self, result: Step<T>) -> Step<()> {
        match result {
            Ok(value) => self.value = Some(Ok(value)),
            Err(Fail::Refused(error)) => self.value = Some(Err(error)),
            Err(Fail::Sql(error)) => return Err(Fail::Sql(error)),
        }
        Ok(())
    }

    /// Answers the caller, which may have been dropped.
    pub(crate) fn send(self, outcome: Result<()>) {
        let value = self.value.unwrap_or_else(|| Err(no_answer()));
        let _ = self.sender.send(outcome.and(value));
    }
}

/// An operation with its caller.
struct Call<T, F> {
    step: F,
    reply: Reply<T>,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Step<T> + Send> Job for Call<T, F> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()> {
        self.reply.keep((self.step)(tx))
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        self.reply.send(outcome);
    }
}

/// Lets the other tasks of this executor run once, so that their operations join the transaction.
#[derive(Debug, Default)]
pub(super) struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
