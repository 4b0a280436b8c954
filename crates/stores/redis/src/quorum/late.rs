//! Servers that answer a claim when it is decided already.

use std::sync::Arc;

use clinch_core::store::Claim;

use super::nodes::Step;
use super::requests::Visit;
use super::round::Quorum;
use crate::record::step;

/// What becomes of half a claim that is heard of late.
pub(crate) struct Latecomer {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) visit: Visit,
    pub(crate) claim: Claim,
    pub(crate) round: u64,
    /// The number that has won, if the round was one.
    pub(crate) token: Option<u64>,
}

impl Latecomer {
    pub(crate) fn take_in(&self, at: usize, number: u64) {
        let (name, request, nodes) = (&self.claim.name, self.claim.request, &self.quorum.nodes);
        let state = self.visit.state();
        if let Some(token) = self.token.filter(|token| state.token == Some(*token)) {
            let packed = step::adopt(request, number, token, self.claim.lease);
            // Without an answer the server just takes no part in this hold.
            drop(nodes.send(at, name, &Step::Other(packed)));
        } else if state.round == self.round {
            // Seen before the next round begins, so that none votes for it.
            self.quorum.saw(number);
            let packed = step::back(request, [number; 2]);
            let chores = &self.quorum.chores;
            chores.insist(nodes, at, name, Step::Other(packed));
        }
        // Otherwise the next round, or a withdrawal, has found it there.
    }
}
