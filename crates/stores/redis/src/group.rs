//! Steps of many tasks in few calls.
//!
//! A call of a script costs the server more than the step inside it. So while a call is under way,
//! steps gather, and the next call takes all of them. A step that comes alone goes alone, at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, keeper};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Config;
use crate::error::strange;
use crate::keys::Keys;
use crate::record::{Reply, millis};
use crate::scripts::{Call, STEPS};
use crate::servers::Servers;

/// Which of the settings is the id of the server's run.
const RUN: usize = 4;
/// The most steps in one call: they keep the server for well under a millisecond.
const MOST: usize = 64;

/// One step on its way.
struct Step {
    key: String,
    packed: Vec<u8>,
    /// Whether replicas must have it before it counts.
    wait: bool,
    since: Instant,
    answer: oneshot::Sender<Result<Reply>>,
}

#[derive(Default)]
struct Queue {
    steps: VecDeque<Step>,
    /// Calls under way.
    calls: usize,
}

/// Gathers steps into calls.
pub(crate) struct Group {
    servers: Servers,
    /// What every call ends with.
    settings: Vec<Vec<u8>>,
    /// Whether the id of the server's run goes with every call.
    strict: bool,
    /// How many replicas must have a grant or a renewal.
    wait: u32,
    /// For how long a step may wait for its turn.
    timeout: Duration,
    queue: Mutex<Queue>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl Group {
    pub(crate) fn new(servers: Servers, config: &Config, keys: &Keys) -> Arc<Self> {
        Arc::new(Self {
            settings: settings(&servers, config, keys),
            servers,
            strict: config.strict.is_some(),
            wait: config.wait,
            timeout: config.timeout,
            queue: Mutex::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a step on its way at once; its answer can be awaited on any executor. A dropped answer
    /// does not undo the step.
    pub(crate) fn send(
        self: &Arc<Self>,
        key: String,
        packed: Vec<u8>,
        wait: bool,
    ) -> oneshot::Receiver<Result<Reply>> {
        let (answer, receiver) = oneshot::channel();
        let step = Step {
            key,
            packed,
            wait,
            since: Instant::now(),
            answer,
        };
        let start = {
            let mut queue = self.queue();
            queue.steps.push_back(step);
            let start = queue.calls < self.servers.calls_at_once();
            queue.calls += usize::from(start);
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump()) {
            let steps = {
                let mut queue = self.queue();
                queue.calls -= 1;
                std::mem::take(&mut queue.steps)
            };
            for step in steps {
                let _ = step.answer.send(Err(error.clone()));
            }
        }
        receiver
    }

    /// Sends a step and waits for its answer.
    pub(crate) async fn run(
        self: &Arc<Self>,
        key: String,
        packed: Vec<u8>,
        wait: bool,
    ) -> Result<Reply> {
        answered(self.send(key, packed, wait)).await
    }

    async fn pump(self: Arc<Self>) {
        let mut pumping = Pumping(Some(&self));
        loop {
            let steps = {
                let mut queue = self.queue();
                self.dismiss_late(&mut queue.steps);
                let steps = self.take(&mut queue.steps);
                if steps.is_empty() {
                    queue.calls -= 1;
                    pumping.0 = None;
                    return;
                }
                steps
            };
            self.call(steps).await;
        }
    }

    /// Fails the steps that have waited for their turn for too long, because the server stalls: they
    /// have not been sent, and whoever asked is to know before long.
    fn dismiss_late(&self, steps: &mut VecDeque<Step>) {
        while let Some(step) = steps.pop_front() {
            if step.since.elapsed() <= self.timeout {
                steps.push_front(step);
                return;
            }
            let text = format!("the server has kept others waiting for {:?}", self.timeout);
            let _ = step
                .answer
                .send(Err(Error::new(ErrorKind::Unreachable, text)));
        }
    }

    /// The steps of the next call: all of one slot.
    fn take(&self, steps: &mut VecDeque<Step>) -> Vec<Step> {
        let Some(first) = steps.front() else {
            return Vec::new();
        };
        let Some(slot) = self.servers.slot(&first.key) else {
            return steps.drain(..steps.len().min(MOST)).collect();
        };
        let mut taken = Vec::new();
        let mut at = 0;
        while taken.len() < MOST && at < steps.len() {
            let same = steps
                .get(at)
                .is_some_and(|step| self.servers.slot(&step.key) == Some(slot));
            match same.then(|| steps.remove(at)).flatten() {
                Some(step) => taken.push(step),
                None => at += 1,
            }
        }
        taken
    }

    async fn call(&self, steps: Vec<Step>) {
        let mut keys = Vec::with_capacity(steps.len());
        let mut args = Vec::with_capacity(steps.len() + self.settings.len());
        let mut answers = Vec::with_capacity(steps.len());
        let mut wait = 0;
        for step in steps {
            if step.wait {
                wait = self.wait;
            }
            keys.push(step.key);
            args.push(step.packed);
            answers.push(step.answer);
        }
        args.extend(self.settings.iter().cloned());
        let run_at = self.strict.then_some(keys.len() + RUN);
        let call = Call {
            script: &STEPS,
            keys,
            args,
            run_at,
            wait,
        };
        match self.servers.call(call).await {
            Ok(Value::Array(replies)) if replies.len() == answers.len() => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    let reply = match &reply {
                        Value::BulkString(bytes) => Reply::decode(bytes),
                        _ => None,
                    };
                    let to = self.servers.scheme();
                    // The caller may have gone.
                    let _ = answer.send(reply.ok_or_else(|| strange(to)));
                }
            }
            Ok(_) => {
                let error = strange(self.servers.scheme());
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Counts a call that ends in a panic as ended: others must not wait for it for ever.
struct Pumping<'a>(Option<&'a Group>);

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.queue().calls -= 1;
        }
    }
}

/// What every call ends with; the script says what each is.
fn settings(servers: &Servers, config: &Config, keys: &Keys) -> Vec<Vec<u8>> {
    let number = |span: Duration| millis(span).to_string().into_bytes();
    vec![
        keys.wake.clone().into_bytes(),
        keys.events.clone().into_bytes(),
        servers.tells(config).to_vec(),
        number(config.remember),
        Vec::new(),
        keys.epoch.clone().into_bytes(),
        number(config.strict.unwrap_or_default()),
    ]
}

/// Waits for the answer to a step.
pub(crate) async fn answered(answer: oneshot::Receiver<Result<Reply>>) -> Result<Reply> {
    answer.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unreachable, "the step was lost")
            .with_effect(clinch_core::Effect::Possible))
    })
}
