//! The writer thread: runs what must wait for other processes, and cleans up.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use clinch_core::Clock;
use clinch_kit::backoff::Backoff;

use super::Batcher;
use super::queue::Jobs;
use crate::cleanup;
use crate::connection::{Database, NotBegun};

/// The pauses between two tries to get the writer's lock.
const PAUSES: Backoff = Backoff::new(Duration::from_micros(50), Duration::from_millis(4));

impl Batcher {
    /// Has the writer thread run the jobs.
    pub(super) fn wake_thread(self: &Arc<Self>) {
        self.queue().drain = true;
        self.start_thread();
        self.signal.notify_one();
    }

    /// Starts the writer thread with its first use: a short process never needs it.
    pub(super) fn start_thread(self: &Arc<Self>) {
        if self.thread_runs.swap(true, Ordering::SeqCst) {
            return;
        }
        let batcher = self.clone();
        let thread = std::thread::Builder::new().name("clinch-sqlite".into());
        if let Err(error) = thread.spawn(move || batcher.work()) {
            self.thread_runs.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot start the writer thread");
            // The operations must not wait forever: run them here after all.
            self.wait_and_run();
        }
    }

    fn work(self: Arc<Self>) {
        loop {
            let (drain, cleanup) = {
                let mut queue = self.queue();
                while !(queue.drain || queue.cleanup || queue.closed) {
                    queue = self
                        .signal
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                if queue.closed && !queue.drain && queue.jobs.is_empty() {
                    // Still under the lock: a caller that sets `drain` later starts a new thread.
                    self.thread_runs.store(false, Ordering::SeqCst);
                    return;
                }
                let closed = queue.closed;
                (
                    std::mem::take(&mut queue.drain) || closed,
                    std::mem::take(&mut queue.cleanup),
                )
            };
            if drain {
                self.wait_and_run();
            }
            if cleanup {
                cleanup::run(&self);
            }
        }
    }

    /// Runs all queued jobs, waiting for other processes for at most `busy`.
    fn wait_and_run(self: &Arc<Self>) {
        let clock = Clock::boot();
        let (mut since, mut pauses) = (clock.now(), PAUSES);
        while self.has_jobs() {
            let mut database = self.database();
            match database.begin() {
                Ok(()) => {
                    let done = database.run(self.take());
                    self.finish(database, done);
                    since = clock.now();
                    pauses.reset();
                }
                Err(NotBegun::Busy) if clock.now().since(since) < self.busy => {
                    let waited = clock.now().since(since);
                    let renewed = self.run_without_lock(&mut database, waited);
                    drop(database);
                    answer(renewed);
                    std::thread::sleep(pauses.next_pause());
                }
                Err(reason) => {
                    // However short `busy` is: no hold may be lost without a try.
                    let renewed = match reason {
                        NotBegun::Busy => self.run_without_lock(&mut database, Duration::MAX),
                        NotBegun::Failed(_) => Jobs::new(),
                    };
                    self.fail_all(database, reason);
                    answer(renewed);
                    since = clock.now();
                }
            }
        }
    }

    /// Runs the jobs that have waited long enough and need no transaction. The caller answers them
    /// after it has unlocked the connection.
    fn run_without_lock(&self, database: &mut Database, waited: Duration) -> Jobs {
        let (mut done, mut left) = (Vec::new(), Vec::new());
        let jobs = {
            let mut queue = self.queue();
            let mut jobs = queue.jobs.iter();
            match jobs.any(|job| job.lock_wait().is_some_and(|most| most <= waited)) {
                true => std::mem::take(&mut queue.jobs),
                false => return done,
            }
        };
        for mut job in jobs {
            let is_due = job.lock_wait().is_some_and(|most| most <= waited);
            match is_due && job.run_without_lock(database) {
                true => done.push(job),
                false => left.push(job),
            }
        }
        // Ahead of those that have come meanwhile.
        let mut queue = self.queue();
        for job in left.into_iter().rev() {
            queue.jobs.push_front(job);
        }
        done
    }
}

/// Answers the callers of jobs that have succeeded.
fn answer(done: Jobs) {
    for job in done {
        job.done(Ok(()));
    }
}
