//! All local queues of a client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{ClaimRequest, ClaimSpec, Engine, LocalQueue};

#[derive(Debug, Default)]
pub(super) struct LocalQueues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Queues that claims with equal specs share.
    shared: HashMap<ClaimSpec, Arc<LocalQueue>>,
    /// Every live queue, by its address: `close` must reach all of them.
    all: HashMap<usize, Weak<LocalQueue>>,
    closed: bool,
}

impl LocalQueues {
    /// The queue of this claim, shared or private. `None` if the client has been closed.
    pub(super) fn for_request(
        &self,
        engine: &Arc<Engine>,
        request: &ClaimRequest,
    ) -> Option<Arc<LocalQueue>> {
        let private = request.fair || request.spec.max_hold.is_some();
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        if let Some(local_queue) = state.shared.get(&request.spec).filter(|_| !private) {
            return Some(local_queue.clone());
        }
        let local_queue = LocalQueue::new(engine.clone(), request.spec.clone(), private);
        state
            .all
            .insert(address(&local_queue), Arc::downgrade(&local_queue));
        if !private {
            state
                .shared
                .insert(request.spec.clone(), local_queue.clone());
        }
        Some(local_queue)
    }

    /// Stops sharing a queue that is not in use.
    pub(super) fn unshare_if_idle(&self, local_queue: &Arc<LocalQueue>) {
        let mut state = self.lock();
        // A claim may have entered it meanwhile.
        let idle =
            |found: &Arc<LocalQueue>| Arc::ptr_eq(found, local_queue) && local_queue.is_idle();
        if state.shared.get(local_queue.spec()).is_some_and(idle) {
            state.shared.remove(local_queue.spec());
        }
    }

    /// Removes a queue that is being dropped.
    pub(super) fn remove(&self, local_queue: &LocalQueue) {
        let removed = self.lock().all.remove(&address(local_queue));
        drop(removed);
    }

    /// Creates no more queues; returns the live ones.
    pub(super) fn close(&self) -> Vec<Arc<LocalQueue>> {
        let mut state = self.lock();
        state.closed = true;
        state.all.values().filter_map(Weak::upgrade).collect()
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> Vec<String> {
        let state = self.lock();
        let queues = state.all.values().filter_map(Weak::upgrade);
        let busy: Vec<Arc<LocalQueue>> = queues.collect();
        drop(state);
        busy.iter()
            .map(|local_queue| local_queue.describe())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(local_queue: &LocalQueue) -> usize {
    std::ptr::from_ref(local_queue).addr()
}
