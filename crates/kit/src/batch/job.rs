//! A step with its caller, and the answer on its way.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use clinch_core::{Effect, Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::Runner;

/// A step and where its answer goes.
pub struct Job<R: Runner> {
    /// What is to be done.
    pub step: R::Step,
    /// Where the answer goes.
    pub reply: Reply<R::Answer>,
}

impl<R: Runner> Job<R> {
    /// A job and its answer, for [`Batcher::enqueue`](super::Batcher::enqueue).
    pub fn new(step: R::Step) -> (Self, Pending<R::Answer>) {
        let (reply, pending) = Reply::channel();
        (Self { step, reply }, pending)
    }
}

/// The end of an answer that is written to.
pub struct Reply<A>(oneshot::Sender<Result<A>>);

impl<A> Reply<A> {
    /// Both ends of an answer.
    ///
    /// ```
    /// # async fn demo() {
    /// use clinch_kit::batch::Reply;
    /// let (reply, pending) = Reply::channel();
    /// assert!(!reply.is_closed());
    /// reply.send(Ok(7));
    /// assert_eq!(pending.await.unwrap(), 7);
    /// # }
    /// # clinch_core::blocking::block_on(demo());
    /// ```
    pub fn channel() -> (Self, Pending<A>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), Pending(receiver))
    }

    /// Answers. If the caller is gone, the answer is discarded.
    pub fn send(self, answer: Result<A>) {
        let _ = self.0.send(answer);
    }

    /// Whether the caller is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// An answer on its way. Cancel safe; dropping it does not undo the step.
///
/// If no answer can come any more, that is an error with an unknown effect.
#[must_use = "the step runs without it, but its outcome is lost"]
pub struct Pending<A>(oneshot::Receiver<Result<A>>);

impl<A> Future for Pending<A> {
    type Output = Result<A>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<A>> {
        Pin::new(&mut self.0).poll(cx).map(|answer| {
            answer.unwrap_or_else(|_| {
                let lost = Error::new(ErrorKind::Unreachable, "the step was lost");
                Err(lost.with_effect(Effect::Possible))
            })
        })
    }
}

impl<R: Runner> fmt::Debug for Job<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl<A> fmt::Debug for Pending<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
