//! Ledger of this client's claims: live ones, and how recent ones ended.
//!
//! etcd forgets a claim with its key. The ledger keeps which requests were queued or granted, so that a
//! repeated request is never created a second time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::store::{Claim, Grant};
use clinch_core::{BootTime, LostReason, Name, RequestId};

use crate::key_slots::KeySlots;
use crate::keys::{KeySlot, Keys};
use crate::leases::Lease;
use crate::record::Record;

/// How many ended claims are kept.
const MAX_ENDED: usize = 4096;

/// A claim of this client.
#[derive(Debug, Clone)]
pub(crate) struct OwnClaim {
    pub(crate) name: Name,
    pub(crate) slot: KeySlot,
    pub(crate) key: Vec<u8>,
    /// Its delay key, if it has a lock-delay.
    pub(crate) delay_key: Option<Vec<u8>>,
    pub(crate) record: Record,
    /// The lease that its key is attached to, once it was put.
    pub(crate) lease: Option<Arc<Lease>>,
    /// Its create revision, once known.
    pub(crate) seq: Option<u64>,
    pub(crate) grant: Option<Grant>,
    /// A request that creates it may still be under way.
    pub(crate) unconfirmed: bool,
    /// When its grant was last recorded.
    pub(crate) recorded: Option<BootTime>,
    /// A release whose reply was lost may have arrived.
    pub(crate) releasing: bool,
}

/// A claim that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedClaim {
    pub(crate) seq: Option<u64>,
    pub(crate) reason: LostReason,
}

#[derive(Debug)]
struct State {
    live: HashMap<RequestId, OwnClaim>,
    ended: HashMap<RequestId, EndedClaim>,
    /// Ended claims, oldest first.
    order: VecDeque<RequestId>,
    slots: KeySlots,
}

impl State {
    /// Removes a live claim. Its key slot is free again if no trace of the claim can be left or arrive.
    fn remove(&mut self, request: RequestId, clean: bool) -> Option<OwnClaim> {
        let own = self.live.remove(&request)?;
        if clean && !own.unconfirmed {
            self.slots.free(own.slot);
        }
        Some(own)
    }
}

/// The claims of this client.
#[derive(Debug)]
pub(crate) struct Ledger(Mutex<State>);

impl Ledger {
    pub(crate) fn new(client: u64) -> Self {
        Self(Mutex::new(State {
            live: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
            slots: KeySlots::new(client),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the claim, before a request that creates it is sent, or finds it as it was entered before.
    pub(crate) fn enter(&self, claim: &Claim, keys: &Keys) -> Result<OwnClaim, EndedClaim> {
        let mut state = self.state();
        if let Some(ended) = state.ended.get(&claim.request) {
            return Err(*ended);
        }
        let State { live, slots, .. } = &mut *state;
        let own = live.entry(claim.request).or_insert_with(|| {
            let slot = slots.take(&claim.name);
            OwnClaim {
                name: claim.name.clone(),
                slot,
                key: keys.claim(&claim.name, claim.limit, slot),
                delay_key: (!claim.lock_delay.is_zero())
                    .then(|| keys.delay(&claim.name, claim.limit, slot)),
                record: Record::of(claim),
                lease: None,
                seq: None,
                grant: None,
                unconfirmed: false,
                recorded: None,
                releasing: false,
            }
        });
        Ok(own.clone())
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<OwnClaim> {
        self.state().live.get(&request).cloned()
    }

    /// Changes the entry of a live claim; does nothing if there is none.
    pub(crate) fn update(&self, request: RequestId, change: impl FnOnce(&mut OwnClaim)) {
        if let Some(own) = self.state().live.get_mut(&request) {
            change(own);
        }
    }

    /// Removes a claim that never existed at etcd and cannot arrive any more.
    pub(crate) fn forget(&self, request: RequestId) {
        self.state().remove(request, true);
    }

    /// Marks a claim as ended. Its key slot is free again only if this client deleted the key: otherwise
    /// a copy of the claim may still arrive, or its delay key may remain.
    pub(crate) fn end(&self, request: RequestId, reason: LostReason) {
        let mut state = self.state();
        let own = state.remove(request, reason == LostReason::Released);
        let seq = own.and_then(|own| own.seq);
        if state.ended.contains_key(&request) {
            return;
        }
        state.ended.insert(request, EndedClaim { seq, reason });
        state.order.push_back(request);
        if state.order.len() > MAX_ENDED
            && let Some(oldest) = state.order.pop_front()
        {
            state.ended.remove(&oldest);
        }
    }

    pub(crate) fn ended(&self, request: RequestId) -> Option<EndedClaim> {
        self.state().ended.get(&request).copied()
    }

    /// Whether any live claim has a lock-delay.
    pub(crate) fn has_delays(&self) -> bool {
        let state = self.state();
        state.live.values().any(|own| own.delay_key.is_some())
    }
}
