//! Batching: steps of many tasks in few calls.
//!
//! A call of a script costs the server more than the step inside it. So steps that arrive while a
//! request is in flight are queued, and the next request takes all of them. A single step is sent at
//! once.

use std::time::Duration;

use clinch_core::{Error, Result};
use clinch_kit::batch::{self, Runner};
use redis::Value;

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
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) packed: Vec<u8>,
    /// Whether it counts only once replicas have it.
    wait: bool,
    /// How long its reply is awaited, if shorter than the timeout.
    pub(crate) limit: Option<Duration>,
    pub(crate) about: About,
}

impl Step {
    pub(crate) fn new(key: String, packed: Vec<u8>, wait: bool) -> Self {
        Self {
            key,
            packed,
            wait,
            limit: None,
            about: About::Other,
        }
    }
}

/// A step, and where its reply goes.
pub(crate) type Job = batch::Job<Steps>;

/// The reply to a step, to be awaited.
pub(crate) type Pending = batch::Pending<Reply>;

/// Where the reply to a step goes, and what the ledger must record of it.
pub(crate) struct Answer {
    pub(crate) reply: batch::Reply<Reply>,
    pub(crate) about: About,
}

/// Batches steps into calls.
#[derive(Debug, Clone)]
pub(crate) struct Batcher(batch::Batcher<Steps>);

/// Sends steps.
pub(crate) struct Steps {
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
    /// Claims in flight or without a reply, and the ends that wait for them.
    pub(crate) ledger: Ledger<Job>,
}

impl Batcher {
    pub(crate) fn new(servers: Servers, config: &Config, keys: &Keys) -> Self {
        Self(batch::Batcher::new(Steps {
            settings: settings(&servers, config, keys),
            slots: matches!(servers, Servers::Cluster(_)).then(|| keys.clone()),
            servers,
            strict: config.strict.is_some(),
            wait: config.wait,
            timeout: config.timeout,
            ledger: Ledger::default(),
        }))
    }

    pub(crate) fn steps(&self) -> &Steps {
        self.0.runner()
    }

    /// Queues a step; its reply can be awaited on any executor. Dropping the reply does not cancel the
    /// step.
    pub(crate) fn send(&self, step: Step) -> Pending {
        let route = self.steps().servers.route(&step.key);
        self.0.submit(route, step)
    }

    /// Queues a job that was held back, or is sent again.
    pub(crate) fn enqueue(&self, job: Job) {
        let route = self.steps().servers.route(&job.step.key);
        self.0.enqueue(route, job);
    }

    fn answer(&self, answers: Vec<Answer>, outcome: Result<Value>) {
        let to = self.steps().servers.scheme();
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
                                reply,
                                about: About::Claim(claimed),
                            },
                        ) => self.send_again(claimed, now, reply),
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

impl Runner for Steps {
    type Key = Route;
    type Step = Step;
    type Answer = Reply;

    /// Sends steps in one request, in one or more calls.
    async fn run(&self, batcher: &batch::Batcher<Self>, route: &Route, jobs: Vec<Job>) {
        let mut groups: Vec<Vec<Job>> = Vec::new();
        for job in jobs {
            let shares = |group: &&mut Vec<Job>| {
                let first = group.first();
                first.is_some_and(|first| self.servers.share_calls(&first.step.key, &job.step.key))
            };
            match groups.iter_mut().find(shares) {
                Some(group) => group.push(job),
                None => groups.push(vec![job]),
            }
        }
        let (calls, answers): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|group| self.call(group)).unzip();
        let outcomes = self.servers.calls(route, calls).await;
        let batcher = Batcher(batcher.clone());
        for (answers, outcome) in answers.into_iter().zip(outcomes) {
            batcher.answer(answers, outcome);
        }
    }

    fn reject(&self, batcher: &batch::Batcher<Self>, job: Job, error: Error) {
        let answer = Answer {
            reply: job.reply,
            about: job.step.about,
        };
        Batcher(batcher.clone()).reply(answer, Err(error));
    }

    fn most(&self) -> usize {
        MOST
    }

    /// An urgent step does not wait behind requests on a stalled connection.
    fn parallel(&self, step: &Step) -> usize {
        match step.limit {
            Some(_) => URGENT,
            None => REQUESTS,
        }
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.timeout)
    }
}

impl Steps {
    /// The call that runs these steps, and where the replies go.
    fn call(&self, jobs: Vec<Job>) -> (Call, Vec<Answer>) {
        let mut keys = Vec::with_capacity(jobs.len());
        let mut args = Vec::with_capacity(jobs.len() + self.settings.len());
        let mut answers = Vec::with_capacity(jobs.len());
        let mut wait = 0;
        let limit = jobs.iter().filter_map(|job| job.step.limit).min();
        for Job { step, reply } in jobs {
            if step.wait {
                wait = self.wait;
            }
            keys.push(step.key);
            args.push(step.packed);
            answers.push(Answer {
                reply,
                about: step.about,
            });
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
