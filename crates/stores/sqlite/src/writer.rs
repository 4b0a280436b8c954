//! Operations of many tasks in few transactions.
//!
//! Callers put their operations into a queue. Whoever finds the connection free takes it, runs all
//! that is queued in one transaction and answers everybody: flat combining, and group commit. An
//! uncontended operation so runs on its caller's thread without a switch. Nobody waits on a
//! caller's thread: if another process is in a transaction, the queue passes to the writer thread,
//! which waits for its turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{ClientId, Clock, Result};
use tokio::sync::oneshot;

use crate::core::{Core, Done, Jobs, NotBegun};
use crate::error::{Step, closed, forked, vanished};
use crate::events;
use crate::maintenance;
use crate::queue::{Queue, Yield};
use crate::renewals::Renewals;
use crate::tx::Tx;
use crate::wakes::Bells;

/// The most operations of one transaction: other processes want their turn.
const GROUP: usize = 256;
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
pub(crate) struct Writer {
    core: Mutex<Core>,
    queue: Mutex<Queue>,
    signal: Condvar,
    thread_runs: AtomicBool,
    busy: Duration,
    bells: Arc<Bells>,
    /// The process that opened the store: a child that was forked from it may not touch it.
    process: u32,
}

impl Writer {
    pub(crate) fn new(core: Core, busy: Duration, bells: Arc<Bells>) -> Self {
        Self {
            core: Mutex::new(core),
            queue: Mutex::default(),
            signal: Condvar::new(),
            thread_runs: AtomicBool::new(false),
            busy,
            bells,
            process: std::process::id(),
        }
    }

    /// Whether this process was forked from the one that opened the store. To be asked before any
    /// lock is taken: a thread that the fork has not copied may hold it for ever.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn bells(&self) -> &Arc<Bells> {
        &self.bells
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
                let mut promise = Promise(Some(self));
                Yield::default().await;
                promise.0 = None;
                // Somebody else's transaction may have taken it along: then the next one is not
                // ours to start, and the operations queued meanwhile can gather.
                if let Ok(reply) = answer.try_recv() {
                    return reply;
                }
                self.drain();
            }
        }
        answer.await.unwrap_or_else(|_| Err(vanished()))
    }

    /// Queues a step; somebody has to drain the queue then.
    pub(crate) fn push<T: Send + 'static>(
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
        answer.await.unwrap_or_else(|_| Err(vanished()))
    }

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

    /// Runs what is queued on this thread, unless somebody else does or another process is busy.
    pub(crate) fn drain(self: &Arc<Self>) {
        for _ in 0..ROUNDS {
            let mut core = match self.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever has it looks at the queue again after letting go.
                Err(TryLockError::WouldBlock) => return,
            };
            if !self.has_jobs() {
                drop(core);
                // A job may have come since, whose caller found the connection taken.
                if self.has_jobs() {
                    continue;
                }
                return;
            }
            match core.begin() {
                Ok(()) => {
                    let done = core.run(self.take());
                    self.finish(core, done);
                }
                Err(NotBegun::Busy) => break,
                Err(failed) => self.fail_all(core, failed),
            }
        }
        if self.has_jobs() {
            self.wake_thread();
        }
    }

    /// Lets go of the connection, answers the callers and tells the others.
    fn finish(self: &Arc<Self>, core: MutexGuard<'_, Core>, done: Done) {
        let tidy = maintenance::is_due(&core);
        drop(core);
        for (job, outcome) in done.outcomes {
            job.done(outcome);
        }
        for news in done.news {
            for woken in news.woken {
                self.bells.tell(woken);
            }
            for watcher in news.watchers {
                if !self.bells.nudge(watcher) {
                    self.check_watcher(watcher);
                }
            }
        }
        // Once is enough: a signal that nobody waits for is a system call all the same.
        if tidy && !std::mem::replace(&mut self.queue().tidy, true) {
            self.start_thread();
            self.signal.notify_one();
        }
    }

    /// Forgets a watcher that cannot be reached, if its session has ended.
    fn check_watcher(self: &Arc<Self>, watcher: ClientId) {
        let pushed = self.push(move |tx| match tx.sessions.is_gone(watcher) {
            true => Ok(events::unsubscribe(tx, watcher)?),
            false => Ok(()),
        });
        if pushed.is_ok() {
            self.wake_thread();
        }
    }

    fn fail_all(&self, core: MutexGuard<'_, Core>, reason: NotBegun) {
        let jobs = {
            let mut queue = self.queue();
            let all = std::mem::take(&mut queue.jobs);
            // A renewal that came just now has not been tried yet.
            let keeps = matches!(reason, NotBegun::Busy);
            let (stay, fail): (VecDeque<_>, VecDeque<_>) = all
                .into_iter()
                .partition(|job| keeps && job.patience().is_some());
            queue.jobs = stay;
            fail
        };
        let error = core.not_begun(reason);
        drop(core);
        for job in jobs {
            job.done(Err(error.clone()));
        }
    }

    fn take(&self) -> Jobs {
        let mut queue = self.queue();
        let count = queue.jobs.len().min(GROUP);
        queue.jobs.drain(..count).collect()
    }

    fn has_jobs(&self) -> bool {
        !self.queue().jobs.is_empty()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the connection for something else than the queue, waiting until it is free.
    pub(crate) fn with_core<T>(self: &Arc<Self>, work: impl FnOnce(&mut Core) -> T) -> T {
        let done = work(&mut self.core());
        // Callers that found the connection taken rely on whoever had it.
        if self.has_jobs() {
            self.wake_thread();
        }
        done
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the last step, refuses all further ones and runs what can be run at once. `None` if
    /// the store has been closed before.
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
        self.bells.close();
        self.drain();
        self.signal.notify_all();
        Some(answer)
    }

    /// Ends the session of a closed store that nobody uses any more, unless claims are left that the
    /// writer thread is to end.
    pub(crate) fn leave(self: &Arc<Self>) {
        let given_up = self.with_core(|core| {
            if !core.mine.is_empty() {
                if !self.has_jobs() {
                    core.end_session();
                }
                return Vec::new();
            }
            core.end_session();
            // Nothing is at the store that would have to be ended, but a watch perhaps, which
            // whoever finds the watcher gone ends. And the callers of the rest have gone.
            self.queue().jobs.drain(..).collect()
        });
        for job in given_up {
            job.done(Err(closed()));
        }
    }

    fn wake_thread(self: &Arc<Self>) {
        self.queue().drain = true;
        self.start_thread();
        self.signal.notify_one();
    }

    /// Starts the writer thread with its first use: a short process never needs it.
    fn start_thread(self: &Arc<Self>) {
        if self.thread_runs.swap(true, Ordering::SeqCst) {
            return;
        }
        let writer = self.clone();
        let thread = std::thread::Builder::new().name("clinch-sqlite".into());
        if let Err(error) = thread.spawn(move || writer.work()) {
            self.thread_runs.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot start the writer thread");
            // The operations must not wait for ever: run them here after all.
            self.wait_and_run();
        }
    }

    /// The writer thread.
    fn work(self: Arc<Self>) {
        loop {
            let (drain, tidy) = {
                let mut queue = self.queue();
                while !(queue.drain || queue.tidy || queue.closed) {
                    queue = self
                        .signal
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                if queue.closed && !queue.drain && queue.jobs.is_empty() {
                    // Still under the lock: whoever sets `drain` after this starts a new thread.
                    self.thread_runs.store(false, Ordering::SeqCst);
                    return;
                }
                let closed = queue.closed;
                (
                    std::mem::take(&mut queue.drain) || closed,
                    std::mem::take(&mut queue.tidy),
                )
            };
            if drain {
                self.wait_and_run();
            }
            if tidy {
                maintenance::tidy(&self);
            }
        }
    }

    /// Runs all that is queued, waiting for other processes as long as is allowed.
    fn wait_and_run(self: &Arc<Self>) {
        let clock = Clock::boot();
        let mut since = clock.now();
        let mut pause = Duration::from_micros(50);
        while self.has_jobs() {
            let mut core = self.core();
            match core.begin() {
                Ok(()) => {
                    let done = core.run(self.take());
                    self.finish(core, done);
                    (since, pause) = (clock.now(), Duration::from_micros(50));
                }
                Err(NotBegun::Busy) if clock.now().since(since) < self.busy => {
                    let renewed = self.run_beside(&mut core, clock.now().since(since));
                    drop(core);
                    answer(renewed);
                    std::thread::sleep(jitter(pause, clock.now().as_nanos()));
                    pause = (pause * 2).min(Duration::from_millis(4));
                }
                Err(reason) => {
                    // However short `busy` is: nobody may lose a hold without having tried.
                    let renewed = match reason {
                        NotBegun::Busy => self.run_beside(&mut core, Duration::MAX),
                        NotBegun::Failed(_) => Jobs::new(),
                    };
                    self.fail_all(core, reason);
                    answer(renewed);
                    since = clock.now();
                }
            }
        }
    }

    /// Runs what has waited long enough and needs no transaction. The caller answers, once it has let
    /// go of the connection.
    fn run_beside(&self, core: &mut Core, waited: Duration) -> Jobs {
        let (mut done, mut left) = (Vec::new(), Vec::new());
        let jobs = {
            let mut queue = self.queue();
            let mut jobs = queue.jobs.iter();
            match jobs.any(|job| job.patience().is_some_and(|most| most <= waited)) {
                true => std::mem::take(&mut queue.jobs),
                false => return done,
            }
        };
        for mut job in jobs {
            let tired = job.patience().is_some_and(|most| most <= waited);
            match tired && job.run_beside(core) {
                true => done.push(job),
                false => left.push(job),
            }
        }
        // In front of those that have come meanwhile.
        let mut queue = self.queue();
        for job in left.into_iter().rev() {
            queue.jobs.push_front(job);
        }
        done
    }
}

/// Tells the callers that their operations are done.
fn answer(done: Jobs) {
    for job in done {
        job.done(Ok(()));
    }
}

/// Between half and all of a pause, by the low bits of the clock.
fn jitter(pause: Duration, nanos: u64) -> Duration {
    let part = u32::try_from(nanos % 512).unwrap_or_default();
    pause / 2 + pause / 2 * part / 512
}

/// A caller that has queued its operation and not yet looked after it: if it goes away, the writer
/// thread must.
struct Promise<'a>(Option<&'a Arc<Writer>>);

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0 {
            writer.wake_thread();
        }
    }
}
