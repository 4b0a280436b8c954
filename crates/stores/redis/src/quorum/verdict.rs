//! What `need` servers say together to a question with yes or no.

use clinch_core::store::LostReason;
use clinch_core::{Effect, Error, Result};

use super::answers::Answers;
use super::nodes::{Nodes, too_few};
use crate::error::strange;
use crate::record::Reply;

/// What the servers have said so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) yes: Vec<usize>,
    /// Who said no, and why.
    pub(crate) no: Vec<(usize, LostReason)>,
    pub(crate) failed: Vec<(usize, Error)>,
}

impl Tally {
    pub(crate) fn count(&mut self, at: usize, answer: Result<Reply>) {
        match answer {
            Ok(Reply::Yes) => self.yes.push(at),
            Ok(Reply::No(reason)) => self.no.push((at, reason)),
            Ok(_) => self.failed.push((at, strange("redis+quorum"))),
            Err(error) => self.failed.push((at, error)),
        }
    }

    /// Hears the servers until their verdict is certain, or all have spoken.
    pub(crate) async fn hear(nodes: &Nodes, answers: &mut Answers) -> Self {
        let mut tally = Self::default();
        tally.hear_more(nodes, answers).await;
        tally
    }

    pub(crate) async fn hear_more(&mut self, nodes: &Nodes, answers: &mut Answers) {
        while self.verdict(nodes).is_none() {
            let Some((at, answer)) = answers.next().await else {
                return;
            };
            self.count(at, answer);
        }
    }

    /// Yes when `need` servers say so; no when so many say no that `need` cannot any more.
    pub(crate) fn verdict(&self, nodes: &Nodes) -> Option<Result<(), LostReason>> {
        if self.yes.len() >= nodes.need {
            return Some(Ok(()));
        }
        (self.no.len() > nodes.all.len() - nodes.need).then(|| Err(self.reason()))
    }

    /// The verdict, or that there is none.
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

    /// Why it is lost: what somebody did says more than that a server does not know.
    fn reason(&self) -> LostReason {
        let said = |reason| self.no.iter().any(|(_, why)| *why == reason);
        [
            LostReason::Evicted,
            LostReason::Released,
            LostReason::Expired,
        ]
        .into_iter()
        .find(|reason| said(*reason))
        .unwrap_or(LostReason::Forgotten)
    }
}
