//! What this client knows of its own requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::RequestId;
use tokio::sync::OwnedMutexGuard;

/// All requests that are waiting, held, or still talked about in the background.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<HashMap<RequestId, Arc<Request>>>);

/// One request.
#[derive(Debug, Default)]
struct Request {
    /// Its rounds come one after the other: what one gives back, another may count.
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
    /// Servers that have released it: they may have forgotten when the release is repeated.
    pub(crate) released: Vec<usize>,
    /// Rounds in a row that came to nothing.
    pub(crate) refused: u32,
    /// Whether nobody will ask for it again.
    pub(crate) done: bool,
}

/// The use of a request: it is remembered while somebody uses it.
#[derive(Debug)]
pub(crate) struct Visit {
    requests: Arc<Requests>,
    id: RequestId,
    request: Arc<Request>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<Request>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request, known or new.
    pub(crate) fn visit(self: &Arc<Self>, id: RequestId) -> Visit {
        let request = self.lock().entry(id).or_default().clone();
        Visit {
            requests: self.clone(),
            id,
            request,
        }
    }

    /// A request, if it is known.
    pub(crate) fn known(self: &Arc<Self>, id: RequestId) -> Option<Visit> {
        let request = self.lock().get(&id)?.clone();
        Some(Visit {
            requests: self.clone(),
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

    /// Waits until no other round of this request is under way.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.request.turn.clone().lock_owned().await
    }
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            id: self.id,
            request: self.request.clone(),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut requests = self.requests.lock();
        // The map's and ours: nobody else can come to it while the map is locked.
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
        let (requests, id) = (Arc::<Requests>::default(), RequestId::from_u128(7));
        let one = requests.visit(id);
        let two = requests.visit(id);
        one.state().token = Some(3);
        drop(one);
        assert_eq!(two.state().token, Some(3));
        two.state().done = true;
        assert_eq!(requests.len(), 1);
        drop(two);
        assert_eq!(requests.len(), 0);
        assert!(requests.known(id).is_none());
    }
}
