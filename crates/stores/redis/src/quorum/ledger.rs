//! Ledger of this client's requests: rounds, tokens, releases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::RequestId;
use tokio::sync::OwnedMutexGuard;

/// All requests that wait, are held, or are used by a background task.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<RequestId, Arc<Request>>>);

/// One request.
#[derive(Debug, Default)]
struct Request {
    /// Rounds of one request run one after the other: what one aborts, another could count.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
}

/// Where a request stands.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The number of its latest round.
    pub(crate) round: u64,
    /// The token that it was granted.
    pub(crate) token: Option<u64>,
    /// Servers that have released it: they may not remember when the release is repeated.
    pub(crate) released: Vec<usize>,
    /// Failed rounds in a row.
    pub(crate) refused: u32,
    /// Whether it will not be claimed again.
    pub(crate) done: bool,
}

/// A use of a request: it stays in the ledger while it is used.
#[derive(Debug)]
pub(crate) struct Visit {
    ledger: Arc<Ledger>,
    id: RequestId,
    request: Arc<Request>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<Request>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request, known or new.
    pub(crate) fn visit(self: &Arc<Self>, id: RequestId) -> Visit {
        let request = self.lock().entry(id).or_default().clone();
        Visit {
            ledger: self.clone(),
            id,
            request,
        }
    }

    /// A request, if it is known.
    pub(crate) fn known(self: &Arc<Self>, id: RequestId) -> Option<Visit> {
        let request = self.lock().get(&id)?.clone();
        Some(Visit {
            ledger: self.clone(),
            id,
            request,
        })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

impl Visit {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.request
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other round of this request is in progress.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.request.turn.clone().lock_owned().await
    }
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            id: self.id,
            request: self.request.clone(),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut requests = self.ledger.lock();
        // The map's and ours: no other can be added while the map is locked.
        if Arc::strong_count(&self.request) == 2 && self.state().done {
            requests.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_forgotten_when_it_is_done_and_unused() {
        let (ledger, id) = (Arc::<Ledger>::default(), RequestId::from_u128(7));
        let one = ledger.visit(id);
        let two = ledger.visit(id);
        one.state().token = Some(3);
        drop(one);
        assert_eq!(two.state().token, Some(3));
        two.state().done = true;
        assert_eq!(ledger.len(), 1);
        drop(two);
        assert_eq!(ledger.len(), 0);
        assert!(ledger.known(id).is_none());
    }
}
