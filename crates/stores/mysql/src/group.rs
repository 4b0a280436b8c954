//! Steps: the short way (`short.rs`, one statement), and the general one (`general.rs`).
//!
//! Steps of this process on one name gather while others of it are under way, and share one read
//! and one write: only processes race each other. And they are in order: a withdrawal never
//! overtakes its own claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::store::ClaimReply;
use clinch_core::{Effect, Error, ErrorKind, Name, Result, keeper};
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::general::General;
use crate::row::Key;
use crate::short::{Short, Tried, unsure};
use crate::steps::{Answer, Step};

type Receiver = oneshot::Receiver<Result<Answer>>;

/// A step on its way.
struct Waiting {
    step: Step,
    answer: oneshot::Sender<Result<Answer>>,
}

/// Gathers the steps of each name.
pub(crate) struct Group {
    bell: Arc<Bell>,
    short: Short,
    general: General,
    queues: Mutex<HashMap<Name, Vec<Waiting>>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl Group {
    pub(crate) fn new(bell: Arc<Bell>, short: Short, general: General) -> Arc<Self> {
        Arc::new(Self {
            bell,
            short,
            general,
            queues: Mutex::default(),
        })
    }

    pub(crate) fn key(&self, name: &Name) -> Key {
        Key::of(&self.general.ns, name)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Name, Vec<Waiting>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a step on its way; a dropped receiver does not undo it.
    pub(crate) fn send(self: &Arc<Self>, name: &Name, step: Step) -> Receiver {
        let (answer, receiver) = oneshot::channel();
        let start = {
            let mut queues = self.queues();
            let start = !queues.contains_key(name);
            let queue = queues.entry(name.clone()).or_default();
            queue.push(Waiting { step, answer });
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump(name.clone())) {
            for waiting in self.queues().remove(name).unwrap_or_default() {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
        receiver
    }

    /// Sends a step and waits for its answer.
    pub(crate) async fn run(self: &Arc<Self>, name: &Name, step: Step) -> Result<Answer> {
        self.send(name, step).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unreachable, "the step was lost")
                .with_effect(Effect::Possible))
        })
    }

    async fn pump(self: Arc<Self>, name: Name) {
        let mut pumping = Pumping(Some((&self, &name)));
        loop {
            let steps = {
                let mut queues = self.queues();
                let Some(queue) = queues.get_mut(&name).filter(|steps| !steps.is_empty()) else {
                    queues.remove(&name);
                    pumping.0 = None;
                    return;
                };
                std::mem::take(queue)
            };
            self.perform(&name, steps).await;
        }
    }

    /// Performs steps as one.
    async fn perform(&self, name: &Name, waiting: Vec<Waiting>) {
        let (steps, senders): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|w| (w.step, w.answer)).unzip();
        let (mut row, mut is_unsure) = (None, false);
        if let ([step], [_]) = (steps.as_slice(), senders.as_slice()) {
            match self.try_short(name, step).await {
                Ok(Tried::Done(answer)) => {
                    for sender in senders {
                        let _ = sender.send(Ok(answer.clone()));
                    }
                    return;
                }
                Ok(Tried::Row(known)) => row = known,
                Ok(Tried::Unsure) => is_unsure = true,
                Err(error) => {
                    for sender in senders {
                        let _ = sender.send(Err(error.clone()));
                    }
                    return;
                }
            }
        }
        // The bell must know of a claim before the claim is at the server.
        for step in &steps {
            if let Step::Claim(claim) = step
                && claim.queue
            {
                self.bell.expect(claim);
            }
        }
        match self.general.attempt(name, &steps, row).await {
            Ok(answers) => {
                for ((sender, answer), step) in senders.into_iter().zip(answers).zip(&steps) {
                    if let Step::Claim(claim) = step
                        && !matches!(answer, Ok(Answer::Claim(ClaimReply::Queued(_))))
                    {
                        self.bell.forget(claim.request);
                    }
                    let answer = match is_unsure {
                        true => unsure(answer, self.short.to()),
                        false => answer,
                    };
                    let _ = sender.send(answer);
                }
            }
            Err(error) => {
                for sender in senders {
                    let answer = match is_unsure {
                        true => unsure(Err(error.clone()), self.short.to()),
                        false => Err(error.clone()),
                    };
                    let _ = sender.send(answer);
                }
            }
        }
    }

    /// Tries one statement for one step.
    async fn try_short(&self, name: &Name, step: &Step) -> Result<Tried> {
        match step {
            // One that waits is in a row that no single statement can change; and where somebody else
            // has just been granted, it would be in vain.
            Step::Claim(claim)
                if !self.bell.awaits(claim.request) && !self.short.known.is_contended(name) =>
            {
                let key = self.key(name);
                let tried = self.short.take(&key, claim, self.bell.greatest()).await?;
                if let Tried::Done(Answer::Claim(ClaimReply::Granted(grant))) = &tried {
                    self.bell.saw(grant.seq);
                }
                Ok(tried)
            }
            // A plain row has no room for an end that must be remembered.
            Step::Release(hold) if self.short.late.may_arrive(hold.request) => {
                Ok(Tried::Row(self.general.recent.take(name)))
            }
            Step::Release(hold) => match self.general.recent.take(name) {
                Some(row) => Ok(Tried::Row(Some(row))),
                // Others waited the last time: they do now, and the short way would be in vain.
                None if self.short.known.is_contended(name) => Ok(Tried::Row(None)),
                None => self.short.give(&self.key(name), hold).await,
            },
            _ => Ok(Tried::Row(None)),
        }
    }
}

/// Fails the steps of a name whose task has panicked: others must not wait for ever.
struct Pumping<'a>(Option<(&'a Group, &'a Name)>);

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        if let Some((group, name)) = self.0 {
            group.queues().remove(name);
        }
    }
}
