//! Renewals: their time limits, and the outcome of a batch of which a part has failed.

use std::pin::Pin;
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{Clock, Effect, Error, ErrorKind, LostReason, Result};

use crate::batch::{Batcher, Pending, Step};
use crate::record::{Reply, expect, step};
use crate::release::{abandon, held};
use crate::store::RedisStore;

/// No connection is dropped sooner than this: a server may be busy for a moment.
const SHORTEST: Duration = Duration::from_millis(250);

/// The time limits of a batch of renewals.
///
/// The engine gives a batch up after a third of its shortest lease. A silent connection must be dropped
/// before, so that the next attempt uses another one; and replies that have arrived by then must count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// For a reply; after that the connection is dropped.
    pub(crate) reply: Duration,
    /// For the whole batch.
    all: Duration,
}

/// Extends holds. A server that does not answer affects only its own holds.
pub(crate) async fn renew(store: &RedisStore, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
    let limits = Limits::of(renewals);
    let send = |renewal: &Renewal| {
        let key = store.keys.state(&renewal.hold.name);
        store.batcher.renew(key, renewal, limits.reply)
    };
    let sent: Vec<_> = renewals.iter().map(send).collect();
    let mut deadline = limits.start();
    let mut outcomes = Vec::with_capacity(sent.len());
    for (pending, renewal) in sent.into_iter().zip(renewals) {
        let reply = deadline.answered(pending).await;
        let held = reply.and_then(|reply| expect(reply, store.info.scheme, held));
        outcomes.push(match held {
            Ok(Ok(())) => Ok(RenewReply::Held),
            Ok(Err(reason)) => {
                abandon(store, &renewal.hold);
                Ok(RenewReply::Lost(reason))
            }
            // Another program has overwritten this lock; the other holds are not affected.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::error!(%error, "a hold is lost");
                Ok(RenewReply::Lost(LostReason::Forgotten))
            }
            Err(error) => Err(error),
        });
    }
    each_or_error(outcomes)
}

impl Batcher {
    /// Sends a renewal; its reply is awaited for at most `limit`.
    pub(crate) fn renew(&self, key: String, renewal: &Renewal, limit: Duration) -> Pending {
        let mut step = Step::new(key, step::renew(renewal), true);
        step.limit = Some(limit);
        self.send(step)
    }
}

impl Limits {
    pub(crate) fn of(renewals: &[Renewal]) -> Self {
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let shortest = shortest.unwrap_or_default();
        Self {
            reply: (shortest / 4).max(SHORTEST),
            all: shortest * 3 / 10,
        }
    }

    /// Starts the time of the batch: its renewals are sent.
    pub(crate) fn start(self) -> Deadline {
        Deadline {
            late: Some(Box::pin(async move { Clock::boot().sleep(self.all).await })),
            all: self.all,
        }
    }
}

/// Awaits the replies to a batch until its time is over.
pub(crate) struct Deadline {
    /// `None` once the time is over.
    late: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    all: Duration,
}

impl Deadline {
    /// The reply to one step, if it arrives in time.
    pub(crate) async fn answered(&mut self, mut pending: Pending) -> Result<Reply> {
        match self.within(&mut pending).await {
            Some(reply) => reply,
            None => Err(self.unanswered()),
        }
    }

    /// The output of `work`, if it completes in time. Once the time is over, work that is already complete
    /// still counts.
    pub(crate) async fn within<F: Future>(&mut self, work: F) -> Option<F::Output> {
        let mut work = std::pin::pin!(work);
        if let Some(late) = &mut self.late {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = late => {}
            }
            self.late = None;
        }
        // Polled without the runtime's budget: a spent budget would make a complete reply look pending.
        tokio::task::unconstrained(async {
            tokio::select! {
                biased;
                done = work => Some(done),
                () = std::future::ready(()) => None,
            }
        })
        .await
    }

    fn unanswered(&self) -> Error {
        let text = format!("a renewal was not answered within {:?}", self.all);
        Error::new(ErrorKind::Unreachable, text).with_effect(Effect::Possible)
    }
}

/// A reply for each hold, `Unknown` where there is an error. An error if all are.
pub(crate) fn each_or_error(outcomes: Vec<Result<RenewReply>>) -> Result<Vec<RenewReply>> {
    let mut known = 0;
    let mut failure = None;
    let mut replies = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        match outcome {
            Ok(reply) => {
                known += 1;
                replies.push(reply);
            }
            Err(error) => {
                failure.get_or_insert(error);
                replies.push(RenewReply::Unknown);
            }
        }
    }
    match failure {
        Some(error) if known == 0 => Err(error),
        Some(error) => {
            let failed = replies.len() - known;
            tracing::warn!(%error, failed, known, "some holds were not renewed");
            Ok(replies)
        }
        None => Ok(replies),
    }
}

#[cfg(test)]
mod tests {
    use clinch_kit::batch;

    use super::*;

    /// Also with more replies than the runtime's budget of one poll.
    #[tokio::test]
    async fn what_was_answered_counts_when_the_time_is_over() {
        let limits = Limits {
            reply: SHORTEST,
            all: Duration::from_millis(1),
        };
        let mut deadline = limits.start();
        let (_silent, pending) = batch::Reply::channel();
        assert!(deadline.answered(pending).await.is_err());
        for _ in 0..1000 {
            let (reply, pending) = batch::Reply::channel();
            reply.send(Ok(Reply::Yes));
            assert_eq!(deadline.answered(pending).await.unwrap(), Reply::Yes);
        }
    }

    #[test]
    fn a_part_that_failed_is_unknown() {
        let failed = || Err(Error::new(ErrorKind::Unreachable, "no"));
        let replies = each_or_error(vec![failed(), Ok(RenewReply::Held), failed()]).unwrap();
        let unknown = RenewReply::Unknown;
        assert_eq!(replies, [unknown, RenewReply::Held, unknown]);
        assert!(each_or_error(vec![failed(), failed()]).is_err());
        assert_eq!(each_or_error(Vec::new()).unwrap(), []);
    }
}
