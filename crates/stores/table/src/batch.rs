//! Batching: steps of this process on one name gather while others of it are under way, and share one read
//! and one write, so that only processes race each other. Steps stay in order: a withdrawal never overtakes
//! its own claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::{Effect, Error, ErrorKind, Name, Result, keeper};
use tokio::sync::oneshot;

use crate::paths::Paths;
use crate::steps::{Answer, Step};

type Receiver = oneshot::Receiver<Result<Answer>>;

/// A step that waits for its turn, and where its answer goes.
type Waiting = (Step, oneshot::Sender<Result<Answer>>);

/// Gathers the steps of each name.
#[derive(Debug)]
pub(crate) struct Batcher {
    paths: Paths,
    queues: Mutex<HashMap<Name, Vec<Waiting>>>,
}

impl Batcher {
    pub(crate) fn new(paths: Paths) -> Arc<Self> {
        Arc::new(Self {
            paths,
            queues: Mutex::default(),
        })
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Name, Vec<Waiting>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a step; a dropped receiver does not undo it.
    pub(crate) fn send(self: &Arc<Self>, name: &Name, step: Step) -> Receiver {
        let (answer, receiver) = oneshot::channel();
        let start = {
            let mut queues = self.queues();
            let start = !queues.contains_key(name);
            let queue = queues.entry(name.clone()).or_default();
            queue.push((step, answer));
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump(name.clone())) {
            for (_, answer) in self.queues().remove(name).unwrap_or_default() {
                let _ = answer.send(Err(error.clone()));
            }
        }
        receiver
    }

    /// Submits a step and waits for its answer.
    pub(crate) async fn run(self: &Arc<Self>, name: &Name, step: Step) -> Result<Answer> {
        self.send(name, step).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unreachable, "the step was lost")
                .with_effect(Effect::Possible))
        })
    }

    async fn pump(self: Arc<Self>, name: Name) {
        let mut pumping = Pumping(Some((&self, &name)));
        loop {
            let waiting = {
                let mut queues = self.queues();
                let Some(queue) = queues.get_mut(&name).filter(|steps| !steps.is_empty()) else {
                    queues.remove(&name);
                    pumping.0 = None;
                    return;
                };
                std::mem::take(queue)
            };
            let (steps, senders): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
            let answers = self.paths.perform(&name, &steps).await;
            for (sender, answer) in senders.into_iter().zip(answers) {
                let _ = sender.send(answer);
            }
        }
    }
}

/// Fails the steps of a name whose task has panicked, so that their callers do not wait for ever.
struct Pumping<'a>(Option<(&'a Batcher, &'a Name)>);

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        if let Some((batcher, name)) = self.0 {
            batcher.queues().remove(name);
        }
    }
}
