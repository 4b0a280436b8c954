//! Batching: steps of this process on one name gather while others of it are under way, and share one read
//! and one write, so that only processes race each other. Steps stay in order: a withdrawal never overtakes
//! its own claim.

use clinch_core::Name;
use clinch_kit::batch::{Batcher, Job, Runner};

use crate::paths::Paths;
use crate::steps::{Answer, Step};

/// The steps of each name.
pub(crate) type StepBatcher = Batcher<Paths>;

impl Runner for Paths {
    type Key = Name;
    type Step = Step;
    type Answer = Answer;

    async fn run(&self, _: &StepBatcher, name: &Name, jobs: Vec<Job<Self>>) {
        let jobs = jobs.into_iter().map(|job| (job.step, job.reply));
        let (steps, replies): (Vec<_>, Vec<_>) = jobs.unzip();
        let answers = self.perform(name, &steps).await;
        for (reply, answer) in replies.into_iter().zip(answers) {
            reply.send(answer);
        }
    }
}
