//! What a task of a worker process acts through: every operation is recorded.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch::{Clinch, Clock, Error, Guard, Lock, Result};

use super::clients::{Clients, Numbered};
use super::config::{Config, Counts};
use super::held::Held;
use crate::history::{Acquire, Event, Kind, Outcome, Recorder, Waiting, now};
use crate::rng::Rng;

/// After so long a wait is recorded, in case that it never ends.
const LONG_WAIT: Duration = Duration::from_millis(300);

/// What all tasks of a process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
    pub(crate) stop: AtomicBool,
    next: AtomicU64,
    operations: AtomicU64,
    grants: AtomicU64,
    errors: AtomicU64,
    losses: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: Config, recorder: Recorder) -> Arc<Self> {
        Arc::new(Self {
            config,
            recorder,
            clock: Clock::boot(),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(1),
            operations: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            losses: AtomicU64::new(0),
        })
    }

    /// The number of a new operation.
    pub(crate) fn op(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX);
        u64::from(self.config.process) << 32 | number
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            operations: self.operations.load(Ordering::Relaxed),
            grants: self.grants.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            losses: self.losses.load(Ordering::Relaxed),
            unrecorded: self.recorder.failures(),
        }
    }

    /// Records an acquire that has ended.
    pub(crate) fn acquired(&self, acquire: Acquire) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        match acquire.outcome {
            Outcome::Ok => self.grants.fetch_add(1, Ordering::Relaxed),
            Outcome::Info if acquire.error.is_some() => self.errors.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        self.recorder.write(&Event::Acquire(acquire));
    }

    pub(crate) fn count_loss(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is asked for: the facts that a record needs and a [`Lock`] does not tell.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) delay: Duration,
    pub(crate) kind: Kind,
    pub(crate) group: Option<(u64, usize)>,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    clients: Arc<Clients>,
    /// Which of the clients this task uses for the present turn.
    present: Mutex<Option<Numbered>>,
    task: usize,
    /// Which of the tasks of its workload it is.
    pub(crate) number: u32,
    rng: Mutex<Rng>,
}

impl Client {
    pub(crate) fn new(
        clients: &Arc<Clients>,
        shared: &Arc<Shared>,
        purpose: u64,
        number: u32,
    ) -> Self {
        let rng = Rng::new(shared.config.seed, purpose);
        let task = usize::try_from(purpose % 251).unwrap_or(0);
        Self {
            shared: shared.clone(),
            clients: clients.clone(),
            present: Mutex::new(clients.of(task)),
            task,
            number,
            rng: Mutex::new(rng),
        }
    }

    /// Takes the client that is there now: the last one may have been closed. For the length of a turn a
    /// task stays with one.
    pub(crate) async fn refresh(&self) {
        loop {
            if let Some(there) = self.clients.of(self.task) {
                *self.present() = Some(there);
                return;
            }
            if self.shared.stopped() {
                return; // the old one is closed, and does nothing
            }
            self.shared.clock.sleep(Duration::from_millis(50)).await;
        }
    }

    fn present(&self) -> std::sync::MutexGuard<'_, Option<Numbered>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of this turn.
    pub(crate) fn clinch(&self) -> Clinch {
        let present = self.present().clone();
        // There is always one; another store is no worse than none.
        present.map_or_else(Clinch::memory, |client| client.clinch)
    }

    /// Its number.
    pub(crate) fn client(&self) -> u32 {
        self.present().as_ref().map_or(0, |client| client.number)
    }

    /// Something random.
    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A name of this run.
    pub(crate) fn name(&self, rest: impl std::fmt::Display) -> String {
        format!("{}{rest}", self.shared.config.prefix)
    }

    /// Asks for a mutex, for as long as it takes.
    pub(crate) fn ask(&self, name: &str) -> Ask {
        Ask {
            name: name.to_owned(),
            units: 1,
            limit: 1,
            lease: self.shared.config.lease(),
            delay: Duration::ZERO,
            kind: Kind::Wait,
            group: None,
        }
    }

    /// A mutex with the lease of this run.
    pub(crate) fn lock(&self, name: &str) -> Lock {
        self.clinch().lock(name).lease(self.shared.config.lease())
    }

    /// Up to so many milliseconds.
    pub(crate) async fn pause(&self, most_ms: u64) {
        let micros = self.random(|rng| rng.below(most_ms * 1000));
        self.shared.clock.sleep(Duration::from_micros(micros)).await;
    }

    /// Waits for an acquire and records how it ended.
    pub(crate) async fn acquire<F>(&self, ask: &Ask, future: F) -> Option<Held>
    where
        F: Future<Output = Result<Option<Guard>>>,
    {
        let (op, invoke) = (self.shared.op(), now());
        let outcome = self.patiently(op, ask, invoke, future).await;
        self.record(op, ask, invoke, outcome)
    }

    /// Waits, and says so when it takes long.
    pub(crate) async fn patiently<F: Future>(
        &self,
        op: u64,
        ask: &Ask,
        invoke: u64,
        future: F,
    ) -> F::Output {
        tokio::pin!(future);
        tokio::select! {
            biased;
            output = &mut future => return output,
            () = self.shared.clock.sleep(LONG_WAIT) => {}
        }
        self.shared.recorder.write(&Event::Waiting(Waiting {
            op,
            process: self.shared.config.process,
            lock: ask.name.clone(),
            invoke,
            at: now(),
        }));
        future.await
    }

    /// Records how an acquire ended.
    pub(crate) fn record(
        &self,
        op: u64,
        ask: &Ask,
        invoke: u64,
        outcome: Result<Option<Guard>>,
    ) -> Option<Held> {
        let mut acquire = self.blank(op, ask, invoke);
        match &outcome {
            Ok(Some(guard)) => fill(&mut acquire, guard),
            Ok(None) if ask.kind == Kind::Dropped => acquire.outcome = Outcome::Info,
            Ok(None) => {}
            Err(error) => {
                acquire.outcome = Outcome::Info;
                acquire.error = Some(describe(error));
            }
        }
        self.shared.acquired(acquire);
        let guard = outcome.ok().flatten();
        guard.map(|guard| Held::new(self.shared.clone(), op, guard))
    }

    /// Records an acquire that gave this guard.
    pub(crate) fn record_guard(&self, op: u64, ask: &Ask, invoke: u64, guard: &Guard) {
        let mut acquire = self.blank(op, ask, invoke);
        fill(&mut acquire, guard);
        self.shared.acquired(acquire);
    }

    /// An acquire that ended just now without a grant.
    fn blank(&self, op: u64, ask: &Ask, invoke: u64) -> Acquire {
        Acquire {
            op,
            process: self.shared.config.process,
            client: self.client(),
            lock: ask.name.clone(),
            owner: String::new(),
            kind: ask.kind,
            units: ask.units,
            limit: ask.limit,
            group: ask.group,
            lease: nanos(ask.lease),
            delay: nanos(ask.delay),
            invoke,
            complete: now(),
            outcome: Outcome::Fail,
            token: None,
            deadline: None,
            error: None,
        }
    }
}

/// What a guard tells of itself.
fn fill(acquire: &mut Acquire, guard: &Guard) {
    acquire.outcome = Outcome::Ok;
    guard.owner().as_str().clone_into(&mut acquire.owner);
    acquire.token = Some(guard.token().get());
    // The clock first: a deadline that is too early accuses nobody.
    let at = now();
    let left = nanos(guard.remaining());
    acquire.deadline = guard.is_valid().then_some(at + left);
}

/// A span in nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// An error in few words.
pub(crate) fn describe(error: &Error) -> String {
    let unknown = match error.may_have_taken_effect() {
        true => " (may have taken effect)",
        false => "",
    };
    format!("{}: {}{unknown}", error.kind().as_str(), error.message())
}
