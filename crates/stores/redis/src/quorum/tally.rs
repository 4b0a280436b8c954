//! The verdict of `need` servers on a step that is answered with yes or no.

use clinch_core::store::LostReason;
use clinch_core::{Effect, Error, Result};

use super::answers::Answers;
use super::nodes::{Nodes, too_few};
use crate::error::unexpected;
use crate::record::Reply;

/// The replies so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) yes: Vec<usize>,
    /// The servers that replied no, and why.
    pub(crate) no: Vec<(usize, LostReason)>,
    pub(crate) failed: Vec<(usize, Error)>,
}

impl Tally {
    pub(crate) fn count(&mut self, at: usize, answer: Result<Reply>) {
        match answer {
            Ok(Reply::Yes) => self.yes.push(at),
            Ok(Reply::No(reason)) => self.no.push((at, reason)),
            Ok(_) => self.failed.push((at, unexpected("redis+quorum"))),
            Err(error) => self.failed.push((at, error)),
        }
    }

    /// Collects replies until the verdict is certain, or all have arrived.
    pub(crate) async fn of(nodes: &Nodes, answers: &mut Answers) -> Self {
        let mut tally = Self::default();
        tally.collect(nodes, answers).await;
        tally
    }

    pub(crate) async fn collect(&mut self, nodes: &Nodes, answers: &mut Answers) {
        while self.verdict(nodes).is_none() {
            let Some((at, answer)) = answers.next().await else {
                return;
            };
            self.count(at, answer);
        }
    }

    /// Yes once `need` servers have replied so; no once `need` cannot be reached any more.
    pub(crate) fn verdict(&self, nodes: &Nodes) -> Option<Result<(), LostReason>> {
        if self.yes.len() >= nodes.need {
            return Some(Ok(()));
        }
        (self.no.len() > nodes.all.len() - nodes.need).then(|| Err(self.reason()))
    }

    /// The verdict, or an error if there is none.
    pub(crate) fn or_unknown(&self, nodes: &Nodes) -> Result<Result<(), LostReason>> {
        self.verdict(nodes).ok_or_else(|| {
            let why = self.failed.first().map(|(_, error)| error.clone());
            let definite = self.failed.len() > nodes.all.len() - nodes.need
                && self.failed.iter().all(|(_, error)| !error.is_temporary());
            match why {
                Some(why) if definite => why,
                why => too_few(self.yes.len() + self.no.len(), nodes, why)
                    .with_effect(Effect::Possible),
            }
        })
    }

    /// Why it is lost: a definite ending takes precedence over a server without a record.
    fn reason(&self) -> LostReason {
        let replied = |reason| self.no.iter().any(|(_, why)| *why == reason);
        [
            LostReason::Evicted,
            LostReason::Released,
            LostReason::Expired,
        ]
        .into_iter()
        .find(|reason| replied(*reason))
        .unwrap_or(LostReason::Forgotten)
    }
}
