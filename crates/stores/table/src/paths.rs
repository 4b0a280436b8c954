//! Which path a step takes.
//!
//! A step on a plain row is one statement (`fast_path.rs`). Steps on names that are contended, watched or
//! not plain are a read and a compare-and-set (`slow_path.rs`); so are several steps at once. The fast path
//! is skipped where it would be in vain, and passes on the row that it has read.

use std::sync::Arc;

use clinch_core::store::ClaimReply;
use clinch_core::{Name, Result};

use crate::Waiters;
use crate::client::Client;
use crate::fast_path::{Fast, FastPath, unsure};
use crate::slow_path::SlowPath;
use crate::steps::{Answer, Step};

/// Both paths.
#[derive(Debug)]
pub(crate) struct Paths {
    client: Arc<Client>,
    waiters: Arc<Waiters>,
    fast: FastPath,
    slow: SlowPath,
}

impl Paths {
    pub(crate) fn new(client: Arc<Client>, waiters: Arc<Waiters>) -> Self {
        Self {
            fast: FastPath {
                client: client.clone(),
            },
            slow: SlowPath {
                client: client.clone(),
                waiters: waiters.clone(),
            },
            client,
            waiters,
        }
    }

    /// Performs steps on one name, as one; one answer for each, in order.
    pub(crate) async fn perform(&self, name: &Name, steps: &[Step]) -> Vec<Result<Answer>> {
        let (mut row, mut is_unsure) = (None, false);
        if let [step] = steps {
            match self.try_fast(name, step).await {
                Ok(Fast::Done(answer)) => return vec![Ok(answer)],
                Ok(Fast::Row(known)) => row = known,
                Ok(Fast::Unsure) => is_unsure = true,
                Err(error) => return vec![Err(error)],
            }
        }
        // A claim must be registered before it is at the server, or its wake could be lost.
        for step in steps {
            if let Step::Claim(claim) = step
                && claim.queue
            {
                self.waiters.expect(claim);
            }
        }
        let answers = match self.slow.perform(name, steps, row).await {
            Ok(answers) => answers,
            Err(error) => return self.all_failed(steps, error, is_unsure),
        };
        let finish = |(answer, step): (Result<Answer>, &Step)| {
            if let Step::Claim(claim) = step
                && !matches!(answer, Ok(Answer::Claim(ClaimReply::Queued(_))))
            {
                self.waiters.forget(claim.request);
            }
            self.settle(answer, is_unsure)
        };
        answers.into_iter().zip(steps).map(finish).collect()
    }

    fn all_failed(
        &self,
        steps: &[Step],
        error: clinch_core::Error,
        is_unsure: bool,
    ) -> Vec<Result<Answer>> {
        let failed = |_| self.settle(Err(error.clone()), is_unsure);
        steps.iter().map(failed).collect()
    }

    fn settle(&self, answer: Result<Answer>, is_unsure: bool) -> Result<Answer> {
        match is_unsure {
            true => unsure(answer, self.client.dialect.address()),
            false => answer,
        }
    }

    /// Tries the fast path for one step, unless it would be in vain.
    async fn try_fast(&self, name: &Name, step: &Step) -> Result<Fast> {
        let cache = &self.client.cache;
        match step {
            // A claim that waits is in a row that is not plain.
            Step::Claim(claim)
                if !self.waiters.awaits(claim.request) && !cache.is_contended(name) =>
            {
                let fast = self.fast.claim(claim).await?;
                if let Fast::Done(Answer::Claim(ClaimReply::Granted(grant))) = &fast {
                    self.client.highest.saw(grant.seq);
                }
                Ok(fast)
            }
            // A plain row has no room for a tombstone.
            Step::Release(hold) if self.client.late.may_arrive(hold.request) => {
                Ok(Fast::Row(cache.take_granted(name)))
            }
            Step::Release(hold) => match cache.take_granted(name) {
                Some(row) => Ok(Fast::Row(Some(row))),
                None if cache.is_contended(name) => Ok(Fast::Row(None)),
                None => self.fast.release(hold).await,
            },
            _ => Ok(Fast::Row(None)),
        }
    }
}
