//! Registry of the claims that callers make in their own tasks.
//!
//! A caller's task may never be polled again, so `close` cannot wait for it. It withdraws the
//! registered claims instead; if one reaches the store later, the store refuses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::RequestId;
use crate::store::Claim;

/// The open claims of one client.
#[derive(Debug, Default)]
pub(super) struct OpenClaims {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    claims: BTreeMap<RequestId, Arc<Claim>>,
    closed: bool,
}

impl OpenClaims {
    /// Registers a claim before it is first sent; `false` if the client has been closed.
    pub(super) fn register(&self, claim: &Arc<Claim>) -> bool {
        let mut state = self.lock();
        if !state.closed {
            state.claims.insert(claim.request, claim.clone());
        }
        !state.closed
    }

    /// The claim has ended, or a driver has taken it over.
    pub(super) fn remove(&self, request: RequestId) {
        // Dropped after the lock is released.
        let removed = self.lock().claims.remove(&request);
        drop(removed);
    }

    /// Refuses further claims and returns the open ones.
    pub(super) fn close(&self) -> Vec<Arc<Claim>> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.claims).into_values().collect()
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> Vec<String> {
        let text = |request: &RequestId| format!("an open claim {request}");
        self.lock().claims.keys().map(text).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
