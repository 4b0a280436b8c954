//! One name as etcd has it: from a listing, and kept up by a watch.

use std::collections::BTreeMap;

use clinch_core::store::line::{self, Place};
use clinch_core::store::{Ending, Predecessor};
use clinch_core::{OwnerId, RequestId};

use crate::keys::{Kind, Seat};
use crate::record::{Record, Word};
use crate::wire::KeyValue;

/// A claim in the line.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    pub(crate) key: Vec<u8>,
    /// `None`: of another library.
    pub(crate) seat: Option<Seat>,
    pub(crate) record: Option<Record>,
    pub(crate) lease: i64,
}

impl Party {
    fn place(&self) -> Place {
        self.record.as_ref().map_or(Place::EXCLUSIVE, Record::place)
    }

    pub(crate) fn request(&self) -> Option<RequestId> {
        self.record.as_ref().map(Record::request)
    }

    /// Who it is, for people.
    pub(crate) fn owner(&self) -> OwnerId {
        match &self.record {
            Some(record) => record.owner(),
            None => OwnerId::new(String::from_utf8_lossy(&self.key).as_ref()),
        }
    }
}

/// What stays of a claim with a lock-delay.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    /// Whose it is.
    pub(crate) record: Record,
    /// The number of the hold.
    pub(crate) seq: u64,
    pub(crate) lease: i64,
    /// When it was put last.
    pub(crate) put: i64,
}

impl Delay {
    fn place(&self) -> Place {
        self.record.place()
    }
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    /// With so many other waiters before it.
    Waits(usize),
}

/// One name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirror {
    /// Claims by their create revision.
    pub(crate) line: BTreeMap<u64, Party>,
    pub(crate) delays: BTreeMap<Seat, Delay>,
    /// The last hold that ended.
    pub(crate) last: Option<Predecessor>,
    /// The last claim that was granted, as far as it was written down.
    pub(crate) held: Option<Predecessor>,
    /// Everything up to here is in it.
    pub(crate) revision: u64,
}

impl Mirror {
    /// A name from a listing at a revision.
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
                self.line
                    .insert(revision(kv.create_revision), party(kind, kv));
            }
            Kind::Delay(seat) => self.delay(seat, &kv),
            Kind::Ended => self.last = Word::read(&kv.value).map(|word| word.predecessor()),
            Kind::Held => self.held = held(&kv),
            Kind::Gone(_) => {}
        }
    }

    pub(crate) fn delay(&mut self, seat: Seat, kv: &KeyValue) {
        if let Some(record) = Record::read(&kv.value) {
            let delay = Delay {
                seq: match record.seq {
                    0 => revision(kv.mod_revision),
                    seq => seq,
                },
                record,
                lease: kv.lease,
                put: kv.mod_revision,
            };
            self.delays.insert(seat, delay);
        }
    }

    /// The delays that run: of claims that are in the line no more.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Seat, &Delay)> {
        let live = |seat| self.line.values().any(|party| party.seat == Some(seat));
        self.delays
            .iter()
            .filter(move |(seat, _)| !live(**seat))
            .map(|(seat, delay)| (*seat, delay))
    }

    fn taken(&self) -> u64 {
        match self.delays.is_empty() {
            true => 0,
            false => self
                .running()
                .map(|(_, delay)| u64::from(delay.record.units))
                .sum(),
        }
    }

    /// How many from the front hold.
    pub(crate) fn holders(&self) -> usize {
        line::holders(self.taken(), self.line.values().map(Party::place))
    }

    /// How the claim with this number stands; `None` if it is not there.
    pub(crate) fn standing(&self, seq: u64) -> Option<Standing> {
        let at = self.line.keys().position(|other| *other == seq)?;
        Some(match at.checked_sub(self.holders()) {
            None => Standing::Holds,
            Some(before) => Standing::Waits(before),
        })
    }

    /// Whether one more at the end of the line would hold at once.
    pub(crate) fn has_room(&self, place: Place) -> bool {
        let line = self.line.values().map(Party::place);
        let all = self.line.len() + 1;
        line::holders(self.taken(), line.chain([place])) == all
    }

    /// The limit in use, if it is not this one.
    pub(crate) fn other_limit(&self, limit: u32) -> Option<u32> {
        let line = self.line.values().map(Party::place);
        let places = line.chain(self.delays.values().map(Delay::place));
        places
            .map(|place| place.limit)
            .find(|other| *other != limit)
    }

    /// The claim of this request, and its number.
    pub(crate) fn find(&self, request: RequestId) -> Option<(u64, &Party)> {
        let mut line = self.line.iter();
        let found = line.find(|(_, party)| party.request() == Some(request));
        found.map(|(seq, party)| (*seq, party))
    }

    /// How the last hold before this number ended. One that was granted, is not there any more and
    /// about which there is no word has run out.
    pub(crate) fn predecessor(&self, seq: u64) -> Option<Predecessor> {
        let earlier = |before: &&Predecessor| before.seq < seq;
        let ended = self.last.as_ref().filter(earlier);
        let held = self.held.as_ref().filter(earlier);
        let held = held.filter(|held| !self.line.contains_key(&held.seq));
        match (ended, held) {
            (Some(ended), Some(held)) if held.seq > ended.seq => Some(held.clone()),
            (Some(ended), _) => Some(ended.clone()),
            (None, held) => held.cloned(),
        }
    }
}

pub(crate) fn party(kind: Kind, kv: KeyValue) -> Party {
    let seat = match kind {
        Kind::Claim(seat) => Some(seat),
        _ => None,
    };
    Party {
        record: seat.and_then(|_| Record::read(&kv.value)),
        seat,
        key: kv.key,
        lease: kv.lease,
    }
}

/// Who was granted last, seen as somebody whose hold has run out: who ended otherwise left a word.
pub(crate) fn held(kv: &KeyValue) -> Option<Predecessor> {
    let mut held = Word::read(&kv.value)?.predecessor();
    held.ending = Ending::Expired;
    if held.seq == 0 {
        held.seq = revision(kv.mod_revision);
    }
    Some(held)
}

/// Revisions are never below zero.
pub(crate) fn revision(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}
