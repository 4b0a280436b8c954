//! Renewals: how long they may take, and what a batch comes to of which a part has failed.

use std::pin::Pin;
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{Clock, Effect, Error, ErrorKind, Result};

use crate::group::{Coming, answered};
use crate::record::Reply;

/// No connection is given up sooner than this: a server may be busy for a moment.
const SHORTEST: Duration = Duration::from_millis(250);

/// How long the renewals of a batch may take.
///
/// The engine gives a batch up after a third of its shortest lease. A connection that is silent must be given
/// up before, so that the next try uses another one; and what has been answered by then must count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a reply; then the connection is given up.
    pub(crate) reply: Duration,
    /// For all of them.
    all: Duration,
}

impl Patience {
    pub(crate) fn of(renewals: &[Renewal]) -> Self {
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let shortest = shortest.unwrap_or_default();
        Self {
            reply: (shortest / 4).max(SHORTEST),
            all: shortest * 3 / 10,
        }
    }

    /// The renewals are on their way.
    pub(crate) fn start(self) -> Waiting {
        Waiting {
            late: Some(Box::pin(async move { Clock::boot().sleep(self.all).await })),
            all: self.all,
        }
    }
}

/// Waits for the answers to a batch, for as long as the batch has.
pub(crate) struct Waiting {
    /// `None` when the time is over.
    late: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    all: Duration,
}

impl Waiting {
    /// The answer to one step, if it comes in time.
    pub(crate) async fn answered(&mut self, mut coming: Coming) -> Result<Reply> {
        match self.within(answered(&mut coming)).await {
            Some(reply) => reply,
            None => Err(self.unanswered()),
        }
    }

    /// What comes of this, if it comes in time. When the time is over, what is there already still counts.
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
        // The runtime must not call this a turn that has taken long enough: it is the last one.
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

/// A reply for each hold. One server that does not answer costs only the holds on it; an error if nothing
/// is known of any.
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
    use tokio::sync::oneshot;

    use super::*;

    /// Also of many more than the runtime lets one task look at in a row.
    #[tokio::test]
    async fn what_was_answered_counts_when_the_time_is_over() {
        let patience = Patience {
            reply: SHORTEST,
            all: Duration::from_millis(1),
        };
        let mut waiting = patience.start();
        let (_silent, coming) = oneshot::channel();
        assert!(waiting.answered(coming).await.is_err());
        for _ in 0..1000 {
            let (to, coming) = oneshot::channel();
            to.send(Ok(Reply::Yes)).unwrap();
            assert_eq!(waiting.answered(coming).await.unwrap(), Reply::Yes);
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
