//! Ledger of this client's claims: live ones with their key slots, and how recent ones ended.
//!
//! etcd forgets a claim with its key. The ledger keeps which requests were queued or granted, so that a
//! repeated request is never created a second time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::{Claim, Grant};
use clinch_core::{BootTime, Clock, LostReason, Name, RequestId};
use clinch_kit::{ledger, lock};

use crate::key_slots::KeySlots;
use crate::keys::{KeySlot, Keys};
use crate::leases::Lease;
use crate::record::Record;

/// How long the end of a claim is kept for repeated requests of this client. Tombstones at etcd refuse
/// late copies.
const REMEMBER: Duration = Duration::from_secs(60);

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

/// The claims of this client.
#[derive(Debug)]
pub(crate) struct Ledger {
    claims: ledger::Ledger<OwnClaim, EndedClaim>,
    slots: Mutex<KeySlots>,
}

impl Ledger {
    pub(crate) fn new(clock: Clock, client: u64) -> Self {
        Self {
            claims: ledger::Ledger::new(clock, REMEMBER),
            slots: Mutex::new(KeySlots::new(client)),
        }
    }

    /// Enters the claim, before a request that creates it is sent, or finds it as it was entered before.
    pub(crate) fn enter(&self, claim: &Claim, keys: &Keys) -> Result<OwnClaim, EndedClaim> {
        self.claims.enter(claim.request, || {
            let slot = lock(&self.slots).take(&claim.name);
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
        })
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<OwnClaim> {
        self.claims.get(request)
    }

    /// Changes the entry of a live claim; does nothing if there is none.
    pub(crate) fn update(&self, request: RequestId, change: impl FnOnce(&mut OwnClaim)) {
        self.claims.update(request, change);
    }

    /// Removes a claim that never existed at etcd and cannot arrive any more.
    pub(crate) fn forget(&self, request: RequestId) {
        self.free_slot(self.claims.forget(request));
    }

    /// Marks a claim as ended. Its key slot is free again only if this client deleted the key: otherwise
    /// a copy of the claim may still arrive, or its delay key may remain.
    pub(crate) fn end(&self, request: RequestId, reason: LostReason) {
        let ended = self.claims.end(request, |own| EndedClaim {
            seq: own.and_then(|own| own.seq),
            reason,
        });
        if reason == LostReason::Released {
            self.free_slot(ended);
        }
    }

    fn free_slot(&self, own: Option<OwnClaim>) {
        if let Some(own) = own.filter(|own| !own.unconfirmed) {
            lock(&self.slots).free(own.slot);
        }
    }

    pub(crate) fn ended(&self, request: RequestId) -> Option<EndedClaim> {
        self.claims.ended(request)
    }

    /// Whether any live claim has a lock-delay.
    pub(crate) fn has_delays(&self) -> bool {
        self.claims.any(|own| own.delay_key.is_some())
    }
}
