//! Batching: operations of many tasks in few transactions.
//!
//! Callers put their operations into a queue. The caller that finds the connection free runs all
//! queued operations in one transaction and answers them: flat combining, with group commit. So an
//! uncontended operation runs on its caller's thread without a switch. No caller's thread blocks: if
//! another process is in a transaction, the queue passes to the writer thread, which waits.

mod queue;
mod thread;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{ClientId, Result};
use clinch_kit::lock;
use tokio::sync::oneshot;

use crate::cleanup;
use crate::connection::{Database, Done, NotBegun};
use crate::error::{Step, closed, forked, no_answer};
use crate::events;
use crate::renew::Renewals;
use crate::transaction::Tx;
use crate::wakes::WakeSocket;
pub(crate) use queue::{Job, Jobs, Reply};
use queue::{Queue, Yield};

/// The most operations of one transaction: other processes need the writer's lock, too.
const MAX_BATCH: usize = 256;
/// The most transactions in a row on a caller's thread.
const ROUNDS: usize = 2;

/// On which thread an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// On the caller's, if the connection is free.
    Inline,
    /// On the writer thread: a slow disk must not stall the keeper.
    Thread,
}

/// The queue in front of a store's connection.
#[derive(Debug)]
pub(crate) struct Batcher {
    database: Mutex<Database>,
    queue: Mutex<Queue>,
    signal: Condvar,
    thread_runs: AtomicBool,
    /// Longest wait for the transactions of other processes.
    busy: Duration,
    wakes: Arc<WakeSocket>,
    /// The process that opened the store: a child that was forked from it may not touch it.
    process: u32,
}

impl Batcher {
    pub(crate) fn new(database: Database, busy: Duration, wakes: Arc<WakeSocket>) -> Self {
        Self {
            database: Mutex::new(database),
            queue: Mutex::default(),
            signal: Condvar::new(),
            thread_runs: AtomicBool::new(false),
            busy,
            wakes,
            process: std::process::id(),
        }
    }

    /// Whether this process was forked from the one that opened the store. To be checked before any
    /// mutex is locked: a thread that the fork did not copy may hold it forever.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn wakes(&self) -> &Arc<WakeSocket> {
        &self.wakes
    }

    /// Runs a step in a transaction and waits for its commit.
    ///
    /// Dropping the future does not undo the step: it may run later, in the order of the calls.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        route: Route,
        step: impl FnMut(&mut Tx<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let mut answer = self.push(step)?;
        match route {
            Route::Thread => self.wake_thread(),
            Route::Inline => {
                let mut on_drop = WakeThreadOnDrop(Some(self));
                Yield::default().await;
                on_drop.0 = None;
                // If another caller's transaction has included it, this caller does not start the
                // next one, so that the operations queued meanwhile can gather.
                if let Ok(reply) = answer.try_recv() {
                    return reply;
                }
                self.drain();
            }
        }
        answer.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Queues a step. The caller must have the queue drained.
    fn push<T: Send + 'static>(
        &self,
        step: impl FnMut(&mut Tx<'_>) -> Step<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T>>> {
        Ok(self.open_queue()?.add(step))
    }

    /// Extends holds: in a transaction, or without one if another process keeps the writer's lock.
    pub(crate) async fn renew(self: &Arc<Self>, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let (job, answer) = Renewals::new(renewals);
        self.open_queue()?.jobs.push_back(Box::new(job));
        self.wake_thread();
        answer.await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// The queue, unless it is closed: an operation that comes after the last step of `close` would
    /// leave a claim behind.
    fn open_queue(&self) -> Result<MutexGuard<'_, Queue>> {
        if self.is_forked() {
            return Err(forked());
        }
        let queue = self.queue();
        match queue.closed {
            true => Err(closed()),
            false => Ok(queue),
        }
    }

    /// Runs the queued jobs on this thread, unless another thread does or another process is in a
    /// transaction.
    fn drain(self: &Arc<Self>) {
        for _ in 0..ROUNDS {
            let mut database = match self.database.try_lock() {
                Ok(database) => database,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that has it looks at the queue again after it has unlocked it.
                Err(TryLockError::WouldBlock) => return,
            };
            if !self.has_jobs() {
                drop(database);
                // A job may have come since, whose caller found the connection locked.
                if self.has_jobs() {
                    continue;
                }
                return;
            }
            match database.begin() {
                Ok(()) => {
                    let done = database.run(self.take());
                    self.finish(database, done);
                }
                Err(NotBegun::Busy) => break,
                Err(failed) => self.fail_all(database, failed),
            }
        }
        if self.has_jobs() {
            self.wake_thread();
        }
    }

    /// Unlocks the connection, answers the callers and wakes other clients.
    fn finish(self: &Arc<Self>, database: MutexGuard<'_, Database>, done: Done) {
        let cleanup = cleanup::is_due(&database);
        drop(database);
        for (job, outcome) in done.outcomes {
            job.done(outcome);
        }
        for after in done.after {
            for woken in after.woken {
                self.wakes.send_grant(woken);
            }
            for watcher in after.watchers {
                if !self.wakes.signal_events(watcher) {
                    self.check_watcher(watcher);
                }
            }
        }
        // Once is enough: a signal without a waiter is a system call all the same.
        if cleanup && !std::mem::replace(&mut self.queue().cleanup, true) {
            self.start_thread();
            self.signal.notify_one();
        }
    }

    /// Removes a watcher that cannot be reached, if its session has ended.
    fn check_watcher(self: &Arc<Self>, watcher: ClientId) {
        let pushed = self.push(move |tx| match tx.sessions.has_ended(watcher) {
            true => Ok(events::unsubscribe(tx, watcher)?),
            false => Ok(()),
        });
        if pushed.is_ok() {
            self.wake_thread();
        }
    }

    fn fail_all(&self, database: MutexGuard<'_, Database>, reason: NotBegun) {
        let jobs = {
            let mut queue = self.queue();
            let all = std::mem::take(&mut queue.jobs);
            // A renewal that came just now has not been tried yet.
            let keeps = matches!(reason, NotBegun::Busy);
            let (stay, fail): (VecDeque<_>, VecDeque<_>) = all
                .into_iter()
                .partition(|job| keeps && job.lock_wait().is_some());
            queue.jobs = stay;
            fail
        };
        let error = database.not_begun(reason);
        drop(database);
        for job in jobs {
            job.done(Err(error.clone()));
        }
    }

    fn take(&self) -> Jobs {
        let mut queue = self.queue();
        let count = queue.jobs.len().min(MAX_BATCH);
        queue.jobs.drain(..count).collect()
    }

    fn has_jobs(&self) -> bool {
        !self.queue().jobs.is_empty()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Uses the connection outside of the queue, waiting until it is free.
    pub(crate) fn with_database<T>(self: &Arc<Self>, work: impl FnOnce(&mut Database) -> T) -> T {
        let done = work(&mut self.database());
        // Callers that found the connection locked rely on this thread.
        if self.has_jobs() {
            self.wake_thread();
        }
        done
    }

    fn database(&self) -> MutexGuard<'_, Database> {
        lock(&self.database)
    }

    /// Queues the last step, refuses all further ones and runs what can be run at once. `None` if
    /// the store was closed before.
    pub(crate) fn close(
        self: &Arc<Self>,
        last: impl FnMut(&mut Tx<'_>) -> Step<()> + Send + 'static,
    ) -> Option<oneshot::Receiver<Result<()>>> {
        if self.is_forked() {
            return None;
        }
        let answer = {
            let mut queue = self.queue();
            if queue.closed {
                return None;
            }
            queue.closed = true;
            queue.add(last)
        };
        self.wakes.close();
        self.drain();
        self.signal.notify_all();
        Some(answer)
    }

    /// Ends the session of a closed store that is being dropped, unless claims are left that the
    /// writer thread has to end.
    pub(crate) fn end_session(self: &Arc<Self>) {
        let discarded = self.with_database(|database| {
            if !database.ledger.is_empty() {
                if !self.has_jobs() {
                    database.end_session();
                }
                return Vec::new();
            }
            database.end_session();
            // No claim is left at the store, but perhaps a watch. A client that finds the watcher
            // gone ends it. The callers of the other jobs were dropped.
            self.queue().jobs.drain(..).collect()
        });
        for job in discarded {
            job.done(Err(closed()));
        }
    }
}

/// Guards a queued operation until its caller drains the queue: if the caller is dropped before,
/// the writer thread runs the operation.
struct WakeThreadOnDrop<'a>(Option<&'a Arc<Batcher>>);

impl Drop for WakeThreadOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(batcher) = self.0 {
            batcher.wake_thread();
        }
    }
}
