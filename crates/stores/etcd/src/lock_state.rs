//! Local copy of one name's keys: built from a listing, updated by watch events.

use std::collections::BTreeMap;

use clinch_core::store::Predecessor;
use clinch_core::store::fifo::{self, Place};
use clinch_core::{OwnerId, RequestId};

use crate::keys::{KeySlot, Kind};
use crate::predecessor::{EndRecord, read_grant_record};
use crate::record::Record;
use crate::wire::{KeyValue, revision};

/// A claim in the queue: it holds or waits.
#[derive(Debug, Clone)]
pub(crate) struct Participant {
    pub(crate) key: Vec<u8>,
    /// `None` for a claim of another library.
    pub(crate) slot: Option<KeySlot>,
    pub(crate) record: Option<Record>,
    pub(crate) lease: i64,
}

impl Participant {
    pub(crate) fn read(kind: Kind, kv: KeyValue) -> Self {
        let slot = match kind {
            Kind::Claim(slot) => Some(slot),
            _ => None,
        };
        Self {
            record: slot.and_then(|_| Record::read(&kv.value)),
            slot,
            key: kv.key,
            lease: kv.lease,
        }
    }

    fn place(&self) -> Place {
        self.record.as_ref().map_or(Place::EXCLUSIVE, Record::place)
    }

    pub(crate) fn request(&self) -> Option<RequestId> {
        self.record.as_ref().map(Record::request)
    }

    /// Its owner; for a claim of another library, its key.
    pub(crate) fn owner(&self) -> OwnerId {
        match &self.record {
            Some(record) => record.owner(),
            None => OwnerId::new(String::from_utf8_lossy(&self.key).as_ref()),
        }
    }
}

/// A delay key.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    /// The record of the hold.
    pub(crate) record: Record,
    /// The sequence number of the hold.
    pub(crate) seq: u64,
    pub(crate) lease: i64,
    /// The revision of the last put.
    pub(crate) mod_revision: i64,
}

/// Whether a claim holds or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    Waits {
        /// Other waiters before it.
        ahead: usize,
    },
}

/// The keys of one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockState {
    /// Claims by create revision.
    pub(crate) queue: BTreeMap<u64, Participant>,
    pub(crate) delays: BTreeMap<KeySlot, Delay>,
    /// The last hold that left an end record.
    pub(crate) last_end: Option<Predecessor>,
    /// The last recorded grant.
    pub(crate) last_grant: Option<Predecessor>,
    /// The copy includes all changes up to this revision.
    pub(crate) revision: u64,
}

impl LockState {
    /// An empty copy, to which the keys of a listing at this revision are added.
    pub(crate) fn new(revision: u64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Adds a key of the listing.
    pub(crate) fn add(&mut self, kind: Kind, kv: KeyValue) {
        match kind {
            Kind::Claim(_) | Kind::Foreign => {
                let seq = revision(kv.create_revision);
                self.queue.insert(seq, Participant::read(kind, kv));
            }
            Kind::Delay(slot) => self.add_delay(slot, &kv),
            Kind::Ended => self.last_end = EndRecord::read(&kv.value).map(|end| end.predecessor()),
            Kind::Held => self.last_grant = read_grant_record(&kv),
            Kind::Gone(_) => {}
        }
    }

    pub(crate) fn add_delay(&mut self, slot: KeySlot, kv: &KeyValue) {
        if let Some(record) = Record::read(&kv.value) {
            let delay = Delay {
                seq: match record.seq {
                    0 => revision(kv.mod_revision),
                    seq => seq,
                },
                record,
                lease: kv.lease,
                mod_revision: kv.mod_revision,
            };
            self.delays.insert(slot, delay);
        }
    }

    /// The running lock-delays: those whose claim has left the queue.
    pub(crate) fn running_delays(&self) -> impl Iterator<Item = (KeySlot, &Delay)> {
        let live = |slot| self.queue.values().any(|claim| claim.slot == Some(slot));
        self.delays
            .iter()
            .filter(move |(slot, _)| !live(**slot))
            .map(|(slot, delay)| (*slot, delay))
    }

    /// Units that running lock-delays occupy.
    fn delayed_units(&self) -> u64 {
        match self.delays.is_empty() {
            true => 0,
            false => self
                .running_delays()
                .map(|(_, delay)| u64::from(delay.record.units))
                .sum(),
        }
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.queue.values().map(Participant::place)
    }

    /// How many claims hold, counted from the front of the queue.
    pub(crate) fn holders(&self) -> usize {
        fifo::holders(self.delayed_units(), self.places())
    }

    /// Whether the claim with this sequence number holds or waits; `None` if it does not exist.
    pub(crate) fn standing(&self, seq: u64) -> Option<Standing> {
        let at = self.queue.keys().position(|other| *other == seq)?;
        Some(match at.checked_sub(self.holders()) {
            None => Standing::Holds,
            Some(ahead) => Standing::Waits { ahead },
        })
    }

    /// Whether one more claim at the end of the queue would hold at once.
    pub(crate) fn has_room(&self, place: Place) -> bool {
        let all = self.queue.len() + 1;
        fifo::holders(self.delayed_units(), self.places().chain([place])) == all
    }

    /// The limit in use, if it is another one.
    pub(crate) fn other_limit(&self, limit: u32) -> Option<u32> {
        let claims = self.places().map(|place| place.limit);
        let delays = self.delays.values().map(|delay| delay.record.limit);
        claims.chain(delays).find(|other| *other != limit)
    }

    /// The claim of this request, and its sequence number.
    pub(crate) fn find(&self, request: RequestId) -> Option<(u64, &Participant)> {
        let mut queue = self.queue.iter();
        let found = queue.find(|(_, claim)| claim.request() == Some(request));
        found.map(|(seq, claim)| (*seq, claim))
    }
}
