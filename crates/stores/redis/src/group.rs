//! Steps of many tasks in few calls.
//!
//! A call of a script costs the server more than the step inside it. So while a call is under way,
//! steps gather, and the next call takes all of them. A step that comes alone goes alone, at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, keeper};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::claims::About;
use crate::config::Config;
use crate::error::strange;
use crate::keys::Keys;
use crate::ledger::Ledger;
use crate::record::{Reply, millis};
use crate::scripts::{Call, STEPS};
use crate::servers::{Lane, Servers};

/// Which of the settings is the id of the server's run, which the key of the highest number, and which the number
/// itself where that key is elsewhere.
const RUN: usize = 4;
const HIGHEST: usize = 7;
const FLOOR: usize = 8;
/// The most steps in one call: they keep the server for well under a millisecond.
const MOST: usize = 64;
/// Requests under way to one server: while it works on one, the next is on its way.
const REQUESTS: usize = 2;
/// The same with those that cannot wait: some tries of a renewal, each over another connection.
const URGENT: usize = 8;

/// One step on its way.
pub(crate) struct Step {
    pub(crate) key: String,
    pub(crate) packed: Vec<u8>,
    /// Whether replicas must have it before it counts.
    wait: bool,
    /// How long its reply is waited for, if not as long as any other.
    pub(crate) limit: Option<Duration>,
    since: Instant,
    pub(crate) answer: Answer,
}

impl Step {
    pub(crate) fn new(key: String, packed: Vec<u8>, wait: bool) -> (Self, Coming) {
        let (to, coming) = oneshot::channel();
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
        (step, coming)
    }

    /// It was kept back, and is sent now.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }
}

/// An answer on its way.
pub(crate) type Coming = oneshot::Receiver<Result<Reply>>;

/// Who waits for an answer, and what it is about.
pub(crate) struct Answer {
    pub(crate) to: oneshot::Sender<Result<Reply>>,
    pub(crate) about: About,
}

/// The steps for one server.
#[derive(Default)]
struct Queue {
    steps: VecDeque<Step>,
    /// Requests under way.
    requests: usize,
}

type Queues = HashMap<Lane, Queue>;

/// Gathers steps into calls.
pub(crate) struct Group {
    pub(crate) servers: Servers,
    /// What every call ends with.
    settings: Vec<Vec<u8>>,
    /// On a cluster each slot has a highest number of its own.
    slots: Option<Keys>,
    /// Whether the id of the server's run goes with every call.
    strict: bool,
    /// How many replicas must have a grant or a renewal.
    wait: u32,
    /// For how long a step may wait for its turn.
    pub(crate) timeout: Duration,
    queues: Mutex<Queues>,
    pub(crate) ledger: Ledger<Step>,
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

    /// Puts a step on its way at once; its answer can be awaited on any executor. A dropped answer
    /// does not undo the step.
    pub(crate) fn send(self: &Arc<Self>, key: String, packed: Vec<u8>, wait: bool) -> Coming {
        let (step, coming) = Step::new(key, packed, wait);
        self.enqueue(step);
        coming
    }

    /// Puts a step on its way.
    pub(crate) fn enqueue(self: &Arc<Self>, step: Step) {
        let lane = self.servers.lane(&step.key);
        // What has less time than others does not wait behind a connection that stalls.
        let requests = if step.limit.is_some() {
            URGENT
        } else {
            REQUESTS
        };
        let start = {
            let mut queues = self.queues();
            let queue = queues.entry(lane.clone()).or_default();
            queue.steps.push_back(step);
            let start = queue.requests < requests;
            queue.requests += usize::from(start);
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump(lane.clone())) {
            let steps = {
                let mut queues = self.queues();
                let queue = queues.entry(lane).or_default();
                queue.requests -= 1;
                std::mem::take(&mut queue.steps)
            };
            for step in steps {
                self.tell(step.answer, Err(error.clone()));
            }
        }
    }

    async fn pump(self: Arc<Self>, lane: Lane) {
        let mut pumping = Pumping(Some((&self, &lane)));
        loop {
            let (late, steps) = {
                let mut queues = self.queues();
                let queue = queues.entry(lane.clone()).or_default();
                let late = self.take_late(&mut queue.steps);
                let most = queue.steps.len().min(MOST);
                let steps: Vec<_> = queue.steps.drain(..most).collect();
                if steps.is_empty() && late.is_empty() {
                    queue.requests -= 1;
                    if queue.requests == 0 {
                        queues.remove(&lane);
                    }
                    pumping.0 = None;
                    return;
                }
                (late, steps)
            };
            for step in late {
                let text = format!("the server has kept others waiting for {:?}", self.timeout);
                self.tell(step.answer, Err(Error::new(ErrorKind::Unreachable, text)));
            }
            if steps.is_empty() {
                continue;
            }
            self.request(&lane, steps).await;
        }
    }

    /// Takes out the steps that have waited for their turn for too long, because the server stalls: they
    /// have not been sent, and their callers are to know before long.
    fn take_late(&self, steps: &mut VecDeque<Step>) -> Vec<Step> {
        let in_time = |step: &Step| step.since.elapsed() <= self.timeout;
        let late = steps.iter().position(in_time).unwrap_or(steps.len());
        steps.drain(..late).collect()
    }

    /// Sends steps in one request, in as many calls as it takes.
    async fn request(self: &Arc<Self>, lane: &Lane, steps: Vec<Step>) {
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
        let outcomes = self.servers.calls(lane, calls).await;
        for (answers, outcome) in answers.into_iter().zip(outcomes) {
            self.answer(answers, outcome);
        }
    }

    /// The call of these steps, and who is to have the answers.
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
            // After the replies comes the server's time.
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
                        (reply, answer) => self.tell(answer, reply.ok_or_else(|| strange(to))),
                    }
                }
                return;
            }
            Ok(_) => strange(to),
            Err(error) => error,
        };
        for answer in answers {
            self.tell(answer, Err(error.clone()));
        }
    }
}

/// Counts a request that ends in a panic as ended: others must not wait for it for ever.
struct Pumping<'a>(Option<(&'a Group, &'a Lane)>);

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        if let Some((group, lane)) = self.0
            && let Some(queue) = group.queues().get_mut(lane)
        {
            queue.requests -= 1;
        }
    }
}

/// What every call ends with; the script says what each is.
fn settings(servers: &Servers, config: &Config, keys: &Keys) -> Vec<Vec<u8>> {
    let number = |span: Duration| millis(span).to_string().into_bytes();
    let highest = match servers {
        Servers::One(..) => keys.highest.clone(),
        // The keys of a script are in one slot there: each call says its own.
        Servers::Cluster(_) => String::new(),
    };
    vec![
        keys.wake.clone().into_bytes(),
        keys.events.clone().into_bytes(),
        servers.tells(config).to_vec(),
        number(config.remember),
        Vec::new(),
        keys.epoch.clone().into_bytes(),
        number(config.strict.unwrap_or_default()),
        highest.into_bytes(),
        Vec::new(),
    ]
}

/// Waits for the answer to a step.
pub(crate) async fn answered(
    answer: impl Future<Output = Result<Result<Reply>, oneshot::error::RecvError>>,
) -> Result<Reply> {
    answer.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unreachable, "the step was lost")
            .with_effect(clinch_core::Effect::Possible))
    })
}
