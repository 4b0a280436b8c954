//! Batching: steps of many tasks in few calls.
//!
//! A call of a script costs the server more than the step inside it. So steps that arrive while a
//! request is in flight are queued, and the next request takes all of them. A single step is sent at
//! once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, keeper};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::claim::About;
use crate::config::Config;
use crate::connection::{Route, Servers};
use crate::error::unexpected;
use crate::keys::Keys;
use crate::ledger::Ledger;
use crate::record::{Reply, millis};
use crate::scripts::{Call, STEPS};

/// The positions among the settings of the server's run id, of the key of the highest number, and of that
/// number itself if the key is at another server.
const RUN: usize = 4;
const HIGHEST: usize = 7;
const FLOOR: usize = 8;
/// The most steps in one call: they occupy the server for well under a millisecond.
const MOST: usize = 64;
/// Requests in flight to one server: while it runs one, the next is in transit.
const REQUESTS: usize = 2;
/// The same for urgent steps: several attempts at a renewal, each on another connection.
const URGENT: usize = 8;

/// A step to be sent.
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) packed: Vec<u8>,
    /// Whether it counts only once replicas have it.
    wait: bool,
    /// How long its reply is awaited, if shorter than the timeout.
    pub(crate) limit: Option<Duration>,
    since: Instant,
    pub(crate) answer: Answer,
}

impl Step {
    pub(crate) fn new(key: String, packed: Vec<u8>, wait: bool) -> (Self, Pending) {
        let (to, pending) = oneshot::channel();
        let answer = Answer {
            to,
            about: About::Other,
        };
        let step = Self {
            key,
            packed,
            wait,
            limit: None,
            since: Instant::now(),
            answer,
        };
        (step, pending)
    }

    /// Restarts its time in the queue: it was held back, and is sent now.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }
}

/// The reply to a step, to be awaited.
pub(crate) type Pending = oneshot::Receiver<Result<Reply>>;

/// Where the reply to a step goes, and what the ledger must record of it.
pub(crate) struct Answer {
    pub(crate) to: oneshot::Sender<Result<Reply>>,
    pub(crate) about: About,
}

/// The steps for one server.
#[derive(Default)]
struct Queue {
    steps: VecDeque<Step>,
    /// Requests in flight.
    requests: usize,
}

type Queues = HashMap<Route, Queue>;

/// Batches steps into calls.
pub(crate) struct Batcher {
    pub(crate) servers: Servers,
    /// The last arguments of every call.
    settings: Vec<Vec<u8>>,
    /// Set on a cluster, where each slot has its own highest number.
    slots: Option<Keys>,
    /// Whether every call carries the server's run id.
    strict: bool,
    /// How many replicas must have a grant or a renewal.
    wait: u32,
    /// How long a step may stay in the queue.
    pub(crate) timeout: Duration,
    queues: Mutex<Queues>,
    pub(crate) ledger: Ledger<Step>,
}

impl std::fmt::Debug for Batcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

impl Batcher {
    pub(crate) fn new(servers: Servers, config: &Config, keys: &Keys) -> Arc<Self> {
        Arc::new(Self {
            settings: settings(&servers, config, keys),
            slots: matches!(servers, Servers::Cluster(_)).then(|| keys.clone()),
            servers,
            strict: config.strict.is_some(),
            wait: config.wait,
            timeout: config.timeout,
            queues: Mutex::default(),
            ledger: Ledger::default(),
        })
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a step; its reply can be awaited on any executor. Dropping the reply does not cancel the
    /// step.
    pub(crate) fn send(self: &Arc<Self>, key: String, packed: Vec<u8>, wait: bool) -> Pending {
        let (step, pending) = Step::new(key, packed, wait);
        self.enqueue(step);
        pending
    }

    /// Queues a step, and starts a request if fewer than allowed are in flight.
    pub(crate) fn enqueue(self: &Arc<Self>, step: Step) {
        let route = self.servers.route(&step.key);
        // An urgent step does not wait behind requests on a stalled connection.
        let requests = if step.limit.is_some() {
            URGENT
        } else {
            REQUESTS
        };
        let start = {
            let mut queues = self.queues();
            let queue = queues.entry(route.clone()).or_default();
            queue.steps.push_back(step);
            let start = queue.requests < requests;
            queue.requests += usize::from(start);
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump(route.clone())) {
            let steps = {
                let mut queues = self.queues();
                let queue = queues.entry(route).or_default();
                queue.requests -= 1;
                std::mem::take(&mut queue.steps)
            };
            for step in steps {
                self.reply(step.answer, Err(error.clone()));
            }
        }
    }

    /// Sends requests until the queue is empty.
    async fn pump(self: Arc<Self>, route: Route) {
        let mut in_flight = InFlight(Some((&self, &route)));
        loop {
            let (late, steps) = {
                let mut queues = self.queues();
                let queue = queues.entry(route.clone()).or_default();
                let late = self.take_late(&mut queue.steps);
                let most = queue.steps.len().min(MOST);
                let steps: Vec<_> = queue.steps.drain(..most).collect();
                if steps.is_empty() && late.is_empty() {
                    queue.requests -= 1;
                    if queue.requests == 0 {
                        queues.remove(&route);
                    }
                    in_flight.0 = None;
                    return;
                }
                (late, steps)
            };
            for step in late {
                let text = format!("the server is busy: not sent within {:?}", self.timeout);
                self.reply(step.answer, Err(Error::new(ErrorKind::Unreachable, text)));
            }
            if steps.is_empty() {
                continue;
            }
            self.request(&route, steps).await;
        }
    }

    /// Removes the steps that have been queued for longer than the timeout because the server stalls:
    /// they were not sent, and their callers must learn so.
    fn take_late(&self, steps: &mut VecDeque<Step>) -> Vec<Step> {
        let in_time = |step: &Step| step.since.elapsed() <= self.timeout;
        let late = steps.iter().position(in_time).unwrap_or(steps.len());
        steps.drain(..late).collect()
    }

    /// Sends steps in one request, in one or more calls.
    async fn request(self: &Arc<Self>, route: &Route, steps: Vec<Step>) {
        let mut groups: Vec<Vec<Step>> = Vec::new();
        for step in steps {
            let shares = |group: &&mut Vec<Step>| {
                let first = group.first();
                first.is_some_and(|first| self.servers.share_calls(&first.key, &step.key))
            };
            match groups.iter_mut().find(shares) {
                Some(group) => group.push(step),
                None => groups.push(vec![step]),
            }
        }
        let (calls, answers): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|group| self.call(group)).unzip();
        let outcomes = self.servers.calls(route, calls).await;
        for (answers, outcome) in answers.into_iter().zip(outcomes) {
            self.answer(answers, outcome);
        }
    }

    /// The call that runs these steps, and where the replies go.
    fn call(&self, steps: Vec<Step>) -> (Call, Vec<Answer>) {
        let mut keys = Vec::with_capacity(steps.len());
        let mut args = Vec::with_capacity(steps.len() + self.settings.len());
        let mut answers = Vec::with_capacity(steps.len());
        let mut wait = 0;
        let limit = steps.iter().filter_map(|step| step.limit).min();
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
        let mut floor_at = None;
        if let (Some(slots), Some(key)) = (&self.slots, keys.first())
            && let Some(place) = args.get_mut(keys.len() + HIGHEST)
        {
            *place = slots.highest_beside(key).into_bytes();
            floor_at = Some(keys.len() + FLOOR);
        }
        let call = Call {
            script: &STEPS,
            keys,
            args,
            run_at,
            floor_at,
            wait,
            limit,
        };
        (call, answers)
    }

    fn answer(self: &Arc<Self>, answers: Vec<Answer>, outcome: Result<Value>) {
        let to = self.servers.scheme();
        let error = match outcome {
            // The last element is the server's time.
            Ok(Value::Array(replies)) if replies.len() == answers.len() + 1 => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    let reply = match &reply {
                        Value::BulkString(bytes) => Reply::decode(bytes),
                        _ => None,
                    };
                    match (reply, answer) {
                        (
                            Some(Reply::Late { now }),
                            Answer {
                                to,
                                about: About::Claim(claimed),
                            },
                        ) => self.send_again(claimed, now, to),
                        (reply, answer) => self.reply(answer, reply.ok_or_else(|| unexpected(to))),
                    }
                }
                return;
            }
            Ok(_) => unexpected(to),
            Err(error) => error,
        };
        for answer in answers {
            self.reply(answer, Err(error.clone()));
        }
    }
}

/// Counts a request as ended even if it panics: later steps must not wait for it.
struct InFlight<'a>(Option<(&'a Batcher, &'a Route)>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some((batcher, route)) = self.0
            && let Some(queue) = batcher.queues().get_mut(route)
        {
            queue.requests -= 1;
        }
    }
}

/// The last arguments of every call; the script documents each.
fn settings(servers: &Servers, config: &Config, keys: &Keys) -> Vec<Vec<u8>> {
    let number = |span: Duration| millis(span).to_string().into_bytes();
    let highest = match servers {
        Servers::One(..) => keys.highest.clone(),
        // A script may use the keys of one slot only, so each call names its own.
        Servers::Cluster(_) => String::new(),
    };
    vec![
        keys.wake.clone().into_bytes(),
        keys.events.clone().into_bytes(),
        servers.notification(config).to_vec(),
        number(config.remember),
        Vec::new(),
        keys.epoch.clone().into_bytes(),
        number(config.strict.unwrap_or_default()),
        highest.into_bytes(),
        Vec::new(),
    ]
}

/// Awaits the reply to a step.
pub(crate) async fn answered(
    answer: impl Future<Output = Result<Result<Reply>, oneshot::error::RecvError>>,
) -> Result<Reply> {
    answer.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unreachable, "the step was lost")
            .with_effect(clinch_core::Effect::Possible))
    })
}
