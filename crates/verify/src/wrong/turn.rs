//! What a worker process does with a wrong lock: take it, use it, give it back, and record that as
//! it would with clinch's.

use std::sync::Arc;
use std::time::Duration;

use clinch::{Clock, Result};

use super::{RawLock, Taken, Wrong};
use crate::history::{Acquire, Event, Kind, Look, Outcome, Release, Waiting, now};
use crate::rng::Rng;
use crate::work::{Said, Shared, obey, say, watch};

/// After so long a wait is recorded, in case that it never ends.
const LONG_WAIT: Duration = Duration::from_millis(300);

/// Does it until the worker is told to stop.
pub(crate) async fn work(
    wrong: &str,
    shared: &Arc<Shared>,
    runtime: &tokio::runtime::Handle,
) -> Result<()> {
    let wrong: Wrong = wrong.parse()?;
    let mut users = Vec::new();
    for number in 0..wrong.users() {
        let purpose = u64::from(shared.config.process) | number << 32;
        users.push(User {
            shared: shared.clone(),
            lock: wrong.open(&shared.config)?,
            rng: Rng::new(shared.config.seed, purpose),
            clock: Clock::boot(),
        });
    }
    say(&Said::Ready);
    obey(shared, None, runtime)?;
    let tasks = users.into_iter().map(|user| runtime.spawn(user.go()));
    watch(shared, tasks.collect()).await?;
    say(&Said::Done(shared.counts()));
    Ok(())
}

struct User {
    shared: Arc<Shared>,
    lock: Box<dyn RawLock>,
    rng: Rng,
    clock: Clock,
}

impl User {
    async fn go(mut self) {
        while !self.shared.stopped() {
            let (op, invoke) = (self.shared.op(), now());
            let taken = self.take(op, invoke).await;
            self.acquired(op, invoke, &taken);
            self.hold(op, &taken).await;
            self.give_back(op, &taken).await;
            let pause = Duration::from_micros(self.rng.below(self.lock.rests() * 1000));
            self.clock.sleep(pause).await;
        }
    }

    fn name(&self) -> String {
        format!("{}lock", self.shared.config.prefix)
    }

    /// Tries until it has it, as tutorials do.
    async fn take(&mut self, op: u64, invoke: u64) -> Taken {
        let tell_at = self.clock.now() + LONG_WAIT;
        let mut waiting = Some(Waiting {
            op,
            process: self.shared.config.process,
            lock: self.name(),
            invoke,
            at: 0,
        });
        loop {
            // What fails is tried again: that is what tutorials say.
            if let Ok(Some(taken)) = self.lock.take().await {
                return taken;
            }
            let wait = self.lock.wait();
            tokio::pin!(wait);
            let mut waited = None;
            tokio::select! {
                biased;
                outcome = &mut wait => waited = Some(outcome),
                () = self.clock.sleep_until(tell_at), if waiting.is_some() => {
                    if let Some(told) = waiting.take() {
                        let told = Waiting { at: now(), ..told };
                        self.shared.recorder.write(&Event::Waiting(told));
                    }
                }
            }
            let waited = match waited {
                Some(outcome) => outcome,
                None => wait.await,
            };
            if waited.is_err() {
                self.clock.sleep(Duration::from_millis(20)).await;
            }
        }
    }

    fn acquired(&self, op: u64, invoke: u64, taken: &Taken) {
        let complete = now();
        let lease = u64::try_from(self.shared.config.lease().as_nanos()).unwrap_or(0);
        self.shared.acquired(Acquire {
            op,
            process: self.shared.config.process,
            client: 0,
            lock: self.name(),
            owner: taken.owner.clone(),
            kind: Kind::Wait,
            units: 1,
            limit: 1,
            group: None,
            lease,
            delay: 0,
            invoke,
            complete,
            outcome: Outcome::Ok,
            // Locks without tokens are told apart by their operations.
            token: Some(taken.token.unwrap_or(op)),
            deadline: self
                .is_valid(taken)
                .then(|| taken.deadline.map_or(u64::MAX, clinch::BootTime::as_nanos)),
            error: None,
        });
    }

    fn is_valid(&self, taken: &Taken) -> bool {
        taken
            .deadline
            .is_none_or(|deadline| self.clock.now() < deadline)
    }

    /// Uses it for a while, for as long as it believes that it has it.
    async fn hold(&mut self, op: u64, taken: &Taken) {
        let lease = u64::try_from(self.shared.config.lease().as_micros()).unwrap_or(0);
        let most = lease * self.lock.needs() / 100;
        let span = Duration::from_micros(self.rng.between(most / 4, most));
        let end = self.clock.now() + span;
        loop {
            let left = end.since(self.clock.now());
            let at = now();
            let valid = self.is_valid(taken);
            self.shared
                .recorder
                .write(&Event::Look(Look { op, at, valid }));
            if left.is_zero() || !valid {
                return;
            }
            self.clock.sleep(left.min(Duration::from_millis(10))).await;
        }
    }

    async fn give_back(&mut self, op: u64, taken: &Taken) {
        let invoke = now();
        let valid = self.is_valid(taken);
        let outcome = self.lock.give_back(taken).await;
        self.shared.count_operation();
        self.shared.recorder.write(&Event::Release(Release {
            op,
            invoke,
            complete: now(),
            outcome: if outcome.is_ok() {
                Outcome::Ok
            } else {
                Outcome::Info
            },
            valid,
            reason: None,
            error: outcome.err().map(|why| why.to_string()),
        }));
    }
}
