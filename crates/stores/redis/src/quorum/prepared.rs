//! The replies of the servers to a claim, and its outcome.

use clinch_core::store::{Claim, Ending, Grant, LostReason, Predecessor, mismatch};
use clinch_core::{Effect, Error, Result};

use super::nodes::{Nodes, too_few};
use crate::error::unexpected;
use crate::record::Reply;

/// Why a claim is not granted.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Others have it; `split` if it is divided among claimants, as far as known.
    Busy { split: bool },
    /// The request has ended.
    Gone(LostReason),
    /// There is no definite outcome, or an error.
    Failed(Error),
}

/// The replies of the servers to a claim.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The servers that have prepared it.
    pub(crate) granted: Vec<(usize, Grant)>,
    busy: usize,
    /// The other limits that the name is in use with.
    mismatch: Vec<u32>,
    pub(crate) gone: Option<LostReason>,
    pub(crate) failed: Vec<Error>,
}

impl Prepared {
    pub(crate) fn count(&mut self, at: usize, answer: Result<Reply>) {
        match answer {
            Ok(Reply::Granted(grant)) => self.granted.push((at, grant)),
            Ok(Reply::Busy { .. }) => self.busy += 1,
            Ok(Reply::Mismatch { limit }) => self.mismatch.push(limit),
            Ok(Reply::No(reason)) => self.gone = Some(reason),
            Ok(_) => self.failed.push(unexpected("redis+quorum")),
            Err(error) => self.failed.push(error),
        }
    }

    pub(crate) fn has_granted(&self, at: usize) -> bool {
        self.granted.iter().any(|(place, _)| *place == at)
    }

    /// How the previous hold ended, by the latest record of any server. At least one of them has the
    /// last hold; if only some have its release, it was released.
    pub(crate) fn predecessor(&self, seq: u64) -> Option<Predecessor> {
        let known = self
            .granted
            .iter()
            .filter_map(|(_, grant)| grant.predecessor.as_ref());
        known
            .filter(|before| before.seq < seq)
            .max_by_key(|before| (before.seq, before.ending == Ending::Released))
            .cloned()
    }

    /// Why it cannot be granted; `None` while pending replies can still decide that.
    pub(crate) fn refusal(&self, nodes: &Nodes, claim: &Claim, pending: usize) -> Option<Refusal> {
        // With this many refusals a grant is impossible.
        let enough = nodes.all.len() - nodes.need + 1;
        if let Some(reason) = self.gone {
            return Some(Refusal::Gone(reason));
        }
        if let Some(used) = self
            .mismatch
            .first()
            .filter(|_| self.mismatch.len() >= enough)
        {
            return Some(Refusal::Failed(mismatch(&claim.name, *used, claim.limit)));
        }
        let refused = self.busy + self.mismatch.len();
        if refused >= enough || refused > 0 && refused + self.granted.len() >= nodes.need {
            let split = !self.granted.is_empty();
            return Some(Refusal::Busy { split });
        }
        if pending > 0 {
            return None;
        }
        let mut definite = self.failed.iter().filter(|error| !error.is_temporary());
        Some(Refusal::Failed(match definite.next() {
            Some(error) if definite.count() + 1 >= enough => error.clone(),
            _ => self.too_few(nodes),
        }))
    }

    /// Too few servers have replied, and some may have prepared it.
    pub(crate) fn too_few(&self, nodes: &Nodes) -> Error {
        let answered = self.granted.len() + self.busy + self.mismatch.len();
        let error = too_few(answered, nodes, self.failed.first().cloned());
        let settled = self.granted.is_empty()
            && !self.failed.iter().any(Error::may_have_taken_effect)
            && answered + self.failed.len() == nodes.all.len();
        match settled {
            true => error,
            false => error.with_effect(Effect::Possible),
        }
    }
}
