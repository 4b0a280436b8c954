//! The replies of all servers to one step, in the order of their arrival.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use clinch_core::Result;

use crate::batch::Pending;
use crate::record::{Reply, expect};

/// The replies of all servers to one step, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Answers {
    scheme: &'static str,
    /// By the index of the server.
    pending: Vec<Option<Pending>>,
}

impl Answers {
    pub(crate) fn new(scheme: &'static str, pending: Vec<Option<Pending>>) -> Self {
        Self { scheme, pending }
    }

    /// How many have not arrived yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.iter().flatten().count()
    }

    /// The next reply and the index of its server; `None` once all have arrived. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Reply>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// A reply that has arrived already.
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
        for (at, slot) in self.pending.iter_mut().enumerate() {
            let Some(pending) = slot else { continue };
            none = false;
            if let Poll::Ready(answer) = Pin::new(pending).poll(cx) {
                *slot = None;
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
