//! The lanes of a client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Ask, Engine, Lane, LaneKey};

#[derive(Debug, Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Lanes that like claims share.
    shared: HashMap<LaneKey, Arc<Lane>>,
    /// Every lane that is alive, by its address: `close` must reach them all.
    all: HashMap<usize, Weak<Lane>>,
    closed: bool,
}

impl Lanes {
    /// The lane where this claim queues: shared with like claims of this client, or its own. `None`
    /// when the client has been closed.
    pub(super) fn of(&self, engine: &Arc<Engine>, ask: &Ask) -> Option<Arc<Lane>> {
        let private = ask.fair || ask.key.max_hold.is_some();
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        if let Some(lane) = state.shared.get(&ask.key).filter(|_| !private) {
            return Some(lane.clone());
        }
        let lane = Lane::new(engine.clone(), ask.key.clone(), private);
        state.all.insert(address(&lane), Arc::downgrade(&lane));
        if !private {
            state.shared.insert(ask.key.clone(), lane.clone());
        }
        Some(lane)
    }

    /// No longer shares a lane that nobody uses.
    pub(super) fn retire(&self, lane: &Arc<Lane>) {
        let mut state = self.lock();
        // A claim may have entered it meanwhile: then it stays.
        let idle = |found: &Arc<Lane>| Arc::ptr_eq(found, lane) && lane.is_idle();
        if state.shared.get(lane.key()).is_some_and(idle) {
            state.shared.remove(lane.key());
        }
    }

    /// Forgets a lane that is being dropped.
    pub(super) fn forget(&self, lane: &Lane) {
        let forgotten = self.lock().all.remove(&address(lane));
        drop(forgotten);
    }

    /// Makes no more lanes; returns those that there are.
    pub(super) fn close(&self) -> Vec<Arc<Lane>> {
        let mut state = self.lock();
        state.closed = true;
        state.all.values().filter_map(Weak::upgrade).collect()
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> Vec<String> {
        let state = self.lock();
        let lanes = state.all.values().filter_map(Weak::upgrade);
        let busy: Vec<Arc<Lane>> = lanes.collect();
        drop(state);
        busy.iter().map(|lane| lane.describe()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address(lane: &Lane) -> usize {
    std::ptr::from_ref(lane).addr()
}
