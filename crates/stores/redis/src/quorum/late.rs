//! Handles prepare replies that arrive after the round was decided: commit or abort.

use std::sync::Arc;

use clinch_core::store::Claim;

use super::ledger::Visit;
use super::nodes::Step;
use super::round::Quorum;
use crate::record::step;

/// A decided round, for late replies.
pub(crate) struct Decided {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) visit: Visit,
    pub(crate) claim: Claim,
    pub(crate) round: u64,
    /// The token, if the round was granted.
    pub(crate) token: Option<u64>,
}

impl Decided {
    /// Commits or aborts a claim that a server has prepared with this number.
    pub(crate) fn resolve(&self, at: usize, number: u64) {
        let (name, request, nodes) = (&self.claim.name, self.claim.request, &self.quorum.nodes);
        let state = self.visit.state();
        if let Some(token) = self.token.filter(|token| state.token == Some(*token)) {
            let packed = step::catch_up(request, number, token, self.claim.lease);
            // Without a reply the server just takes no part in this hold.
            drop(nodes.send(at, name, &Step::Other(packed)));
        } else if state.round == self.round {
            // Recorded before the next round begins, so that none votes for it.
            self.quorum.saw(number);
            let packed = step::abort(request, [number; 2]);
            let background = &self.quorum.background;
            background.insist(nodes, at, name, Step::Other(packed));
        }
        // Otherwise the next round, or a withdrawal, has found it there.
    }
}
