//! Batching: steps of many callers in few requests.
//!
//! A request costs more than the step in it. While a request of a key is under way, steps of that key
//! gather, and the next request takes all of them. A step that comes alone is sent alone, at once.
//!
//! Steps run on the keeper. A caller that is dropped undoes nothing: its step runs, and its answer is
//! discarded.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use clinch_kit::batch::{Batcher, Job, Runner};
//!
//! struct Doubler; // stands for a store; one request carries all numbers
//!
//! impl Runner for Doubler {
//!     type Key = &'static str;
//!     type Step = u32;
//!     type Answer = u32;
//!
//!     async fn run(&self, _: &Batcher<Self>, _: &Self::Key, jobs: Vec<Job<Self>>) {
//!         for Job { step, reply } in jobs {
//!             reply.send(Ok(2 * step));
//!         }
//!     }
//! }
//!
//! let batcher = Batcher::new(Doubler);
//! let (one, two) = (batcher.submit("server", 1), batcher.submit("server", 2));
//! assert_eq!((one.await?, two.await?), (2, 4));
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod job;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, keeper};

use crate::lock;
pub use job::{Job, Pending, Reply};
use queue::Queue;

/// What performs the steps of a [`Batcher`].
pub trait Runner: Sized + Send + Sync + 'static {
    /// Steps with the same key share requests: a server, a name.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// One step.
    type Step: Send + 'static;
    /// What a step gives.
    type Answer: Send + 'static;

    /// Performs steps together, in their order, and answers each. A reply that is dropped counts as
    /// lost, with an unknown effect. Runs on the keeper.
    fn run(
        &self,
        batcher: &Batcher<Self>,
        key: &Self::Key,
        jobs: Vec<Job<Self>>,
    ) -> impl Future<Output = ()> + Send;

    /// Answers a step that was not sent and will not be.
    fn reject(&self, batcher: &Batcher<Self>, job: Job<Self>, error: Error) {
        let _ = batcher;
        job.reply.send(Err(error));
    }

    /// The most steps in one run.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// How many runs of one key may be under way when this step starts another one. With more than
    /// one, steps of a key may overtake each other.
    fn parallel(&self, step: &Self::Step) -> usize {
        let _ = step;
        1
    }

    /// How long a step may wait for its turn before it is rejected; `None` for any time.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// Collects steps and has them run in batches. Clones share the queues.
pub struct Batcher<R: Runner>(Arc<Shared<R>>);

struct Shared<R: Runner> {
    runner: R,
    queues: Mutex<HashMap<R::Key, Queue<R>>>,
}

impl<R: Runner> Batcher<R> {
    /// A batcher without steps.
    pub fn new(runner: R) -> Self {
        Self(Arc::new(Shared {
            runner,
            queues: Mutex::new(HashMap::new()),
        }))
    }

    /// What performs the steps.
    pub fn runner(&self) -> &R {
        &self.0.runner
    }

    /// Queues a step at once; its answer can be awaited on any executor. Dropping the answer does not
    /// undo the step.
    pub fn submit(&self, key: R::Key, step: R::Step) -> Pending<R::Answer> {
        let (job, pending) = Job::new(step);
        self.enqueue(key, job);
        pending
    }

    /// Queues a job that was made before, or that its runner sends again.
    pub fn enqueue(&self, key: R::Key, job: Job<R>) {
        let parallel = self.runner().parallel(&job.step).max(1);
        let start = {
            let mut queues = lock(&self.0.queues);
            let queue = queues.entry(key.clone()).or_default();
            queue.push(job);
            let start = queue.pumps < parallel;
            queue.pumps += usize::from(start);
            start
        };
        if start {
            self.start(key);
        }
    }

    /// Starts a pump that is counted already.
    fn start(&self, key: R::Key) {
        let Err(error) = keeper::spawn(pump(self.clone(), key.clone())) else {
            return;
        };
        let jobs = {
            let mut queues = lock(&self.0.queues);
            let Some(queue) = queues.get_mut(&key) else {
                return;
            };
            let jobs = queue.take_all();
            queue.pumps -= 1;
            if queue.pumps == 0 {
                queues.remove(&key);
            }
            jobs
        };
        for job in jobs {
            self.runner().reject(self, job, error.clone());
        }
    }

    /// The next jobs. `None` if there are none: the pump is then not counted any more.
    fn take(&self, key: &R::Key, patience: Option<Duration>) -> Option<Taken<R>> {
        let mut queues = lock(&self.0.queues);
        let queue = queues.get_mut(key)?;
        let late = patience.map_or_else(Vec::new, |patience| queue.take_late(patience));
        let jobs = queue.take(self.runner().most().max(1));
        if late.is_empty() && jobs.is_empty() {
            queue.pumps -= 1;
            if queue.pumps == 0 {
                queues.remove(key);
            }
            return None;
        }
        Some(Taken { late, jobs })
    }
}

/// What a pump has taken from its queue.
struct Taken<R: Runner> {
    /// Jobs that have waited for longer than they may.
    late: Vec<Job<R>>,
    /// Jobs to run.
    jobs: Vec<Job<R>>,
}

async fn pump<R: Runner>(batcher: Batcher<R>, key: R::Key) {
    let mut pumping = Pumping(Some((&batcher, &key)));
    let runner = batcher.runner();
    loop {
        let patience = runner.patience();
        let Some(Taken { late, jobs }) = batcher.take(&key, patience) else {
            break;
        };
        for job in late {
            let waited = patience.unwrap_or_default();
            let text = format!("the server has kept others waiting for {waited:?}");
            runner.reject(&batcher, job, Error::new(ErrorKind::Unreachable, text));
        }
        if !jobs.is_empty() {
            runner.run(&batcher, &key, jobs).await;
        }
    }
    pumping.0 = None;
}

/// Counts a pump out that ends in a panic, and starts another one for the steps that are left.
struct Pumping<'a, R: Runner>(Option<(&'a Batcher<R>, &'a R::Key)>);

impl<R: Runner> Drop for Pumping<'_, R> {
    fn drop(&mut self) {
        let Some((batcher, key)) = self.0 else { return };
        let restart = {
            let mut queues = lock(&batcher.0.queues);
            let Some(queue) = queues.get_mut(key) else {
                return;
            };
            let restart = !queue.is_empty();
            if !restart {
                queue.pumps -= 1;
                if queue.pumps == 0 {
                    queues.remove(key);
                }
            }
            restart
        };
        if restart {
            batcher.start(key.clone());
        }
    }
}

impl<R: Runner> Clone for Batcher<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runner> fmt::Debug for Batcher<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}
