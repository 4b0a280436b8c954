//! The steps of one key that wait for their turn.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{Job, Runner};

/// Jobs in the order in which they came, and the pumps that take them.
pub(super) struct Queue<R: Runner> {
    jobs: VecDeque<(Instant, Job<R>)>,
    /// Pumps that run or are about to.
    pub(super) pumps: usize,
}

impl<R: Runner> Default for Queue<R> {
    fn default() -> Self {
        Self {
            jobs: VecDeque::new(),
            pumps: 0,
        }
    }
}

impl<R: Runner> Queue<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn push(&mut self, job: Job<R>) {
        self.jobs.push_back((Instant::now(), job));
    }

    /// Takes at most `most` jobs.
    pub(super) fn take(&mut self, most: usize) -> Vec<Job<R>> {
        let most = most.min(self.jobs.len());
        self.jobs.drain(..most).map(|(_, job)| job).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Job<R>> {
        self.take(usize::MAX)
    }

    /// Takes the jobs that have waited for longer than `patience`: the oldest are in front.
    pub(super) fn take_late(&mut self, patience: Duration) -> Vec<Job<R>> {
        let in_time = |(since, _): &(Instant, Job<R>)| since.elapsed() <= patience;
        let late = self.jobs.iter().position(in_time);
        self.take(late.unwrap_or(self.jobs.len()))
    }
}
