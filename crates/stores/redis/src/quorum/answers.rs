//! The answers of all servers to one step, as they come.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use clinch_core::{Effect, Error, ErrorKind, Result};

use crate::group::Coming;
use crate::record::{Reply, expect};

/// The answers of all servers to one step, as they come.
#[derive(Debug)]
pub(crate) struct Answers {
    scheme: &'static str,
    /// By the place of the server.
    coming: Vec<Option<Coming>>,
}

impl Answers {
    pub(crate) fn new(scheme: &'static str, coming: Vec<Option<Coming>>) -> Self {
        Self { scheme, coming }
    }

    /// How many have not come yet.
    pub(crate) fn pending(&self) -> usize {
        self.coming.iter().flatten().count()
    }

    /// The next answer and the place of its server; `None` when all have come. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Reply>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// An answer that is there already.
    pub(crate) async fn ready(&mut self) -> Option<(usize, Result<Reply>)> {
        poll_fn(|cx| {
            Poll::Ready(match self.poll_next(cx) {
                Poll::Ready(answer) => answer,
                Poll::Pending => None,
            })
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Reply>)>> {
        let mut none = true;
        for (at, slot) in self.coming.iter_mut().enumerate() {
            let Some(coming) = slot else { continue };
            none = false;
            if let Poll::Ready(answer) = Pin::new(coming).poll(cx) {
                *slot = None;
                let answer = answer.unwrap_or_else(|_| Err(lost()));
                let answer = answer.and_then(|reply| expect(reply, self.scheme, Some));
                return Poll::Ready(Some((at, answer)));
            }
        }
        match none {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, "the step was lost").with_effect(Effect::Possible)
}
