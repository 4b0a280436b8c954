//! Ledger of this client's claims: live ones, and how recent ones ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::store::{Claim, Ending, LostReason};
use clinch_core::{BootTime, Clock, RequestId};
use clinch_kit::ledger;

use crate::connection::Session;
use crate::own_claim::OwnClaim;

/// How long the end of a claim is kept for its repeated requests.
const REMEMBER: Duration = Duration::from_secs(60);

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedClaim {
    pub(crate) seq: Option<u64>,
    pub(crate) ending: Ending,
    pub(crate) reason: LostReason,
}

/// The claims of this client.
#[derive(Debug)]
pub(crate) struct Ledger(ledger::Ledger<Arc<OwnClaim>, EndedClaim>);

impl Ledger {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(ledger::Ledger::new(clock, REMEMBER))
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<Arc<OwnClaim>> {
        self.0.get(request)
    }

    pub(crate) fn ended(&self, request: RequestId) -> Option<EndedClaim> {
        self.0.ended(request)
    }

    pub(crate) fn live(&self) -> Vec<Arc<OwnClaim>> {
        self.0.live()
    }

    /// The claim in this session, or as it was entered before.
    pub(crate) fn enter(
        &self,
        claim: &Claim,
        folder: String,
        session: Arc<Session>,
        now: BootTime,
    ) -> Result<Arc<OwnClaim>, EndedClaim> {
        let new = || Arc::new(OwnClaim::new(claim, folder, session, now));
        self.0.enter(claim.request, new)
    }

    /// Extends the deadline of a claim before a request that keeps it is sent; `Err` if it has ended.
    ///
    /// The deadline moves even if the request fails: it may have been applied, and then the claim must
    /// still exist.
    pub(crate) fn extend(
        &self,
        own: &OwnClaim,
        sent: BootTime,
        lease: Duration,
    ) -> Result<(), LostReason> {
        if let Some(ended) = self.ended(own.request()) {
            return Err(ended.reason);
        }
        let session_ended = {
            let mut state = own.state();
            let session_ended = state.session.has_ended();
            if !session_ended {
                // Cleanup removes it.
                if sent >= state.deadline {
                    return Err(LostReason::Expired);
                }
                if state.releasing {
                    return Err(LostReason::Released);
                }
                state.deadline = state.deadline.max(sent + lease);
            }
            session_ended
        };
        if session_ended {
            self.expire(own);
            return Err(LostReason::Expired);
        }
        Ok(())
    }

    /// Ends a claim: its node is gone, or goes with its session.
    pub(crate) fn end(&self, own: &OwnClaim, ending: Ending, reason: LostReason) {
        let (seq, session) = {
            let state = own.state();
            let seq = state.granted.as_ref().map(|grant| grant.seq);
            (seq, state.session.clone())
        };
        let end = EndedClaim {
            seq,
            ending,
            reason,
        };
        if self.0.end(own.request(), |_| end).is_some() {
            session.claims.fetch_sub(1, Ordering::Relaxed);
        }
        own.ended.close();
    }

    /// Ends a claim that its own client has given up.
    pub(crate) fn release(&self, own: &OwnClaim) {
        self.end(own, Ending::Released, LostReason::Released);
    }

    /// Ends a claim whose lease or session has expired.
    pub(crate) fn expire(&self, own: &OwnClaim) {
        self.end(own, Ending::Expired, LostReason::Expired);
    }

    /// Ends a request that was never entered, so that it cannot be entered any more. Returns the claim
    /// if it was entered meanwhile.
    pub(crate) fn forbid(&self, request: RequestId) -> Option<Arc<OwnClaim>> {
        let own = self.0.end(request, |_| EndedClaim {
            seq: None,
            ending: Ending::Released,
            reason: LostReason::Released,
        });
        if let Some(own) = &own {
            own.state().session.claims.fetch_sub(1, Ordering::Relaxed);
        }
        own
    }

    /// Removes a claim of which nothing is at the servers: it may be repeated.
    pub(crate) fn forget(&self, own: &OwnClaim) {
        let session = own.state().session.clone();
        if self.0.forget(own.request()).is_some() {
            session.claims.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that a claim has moved to another session.
    pub(crate) fn set_session(&self, own: &OwnClaim, old: &Session, new: Arc<Session>) {
        if self.get(own.request()).is_some() {
            old.claims.fetch_sub(1, Ordering::Relaxed);
            new.claims.fetch_add(1, Ordering::Relaxed);
        }
        own.state().session = new;
    }

    /// The requests of the holds in this session.
    pub(crate) fn held_in(&self, session: i64) -> Vec<RequestId> {
        let held = |own: &&Arc<OwnClaim>| {
            let state = own.state();
            state.session.id == session && state.granted.is_some() && !state.releasing
        };
        let live = self.live();
        live.iter().filter(held).map(|own| own.request()).collect()
    }
}
