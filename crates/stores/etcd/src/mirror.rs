//! One name as etcd has it: from a listing, and kept up by a watch.

use std::collections::BTreeMap;

use clinch_core::store::line::{self, Place};
use clinch_core::store::{Ending, Event, EventKind, Predecessor};
use clinch_core::{Name, OwnerId, RequestId, Token};

use crate::keys::{Keys, Kind, Seat};
use crate::record::{Record, Word};
use crate::wire::{KeyValue, WatchEvent};

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
    pub(crate) place: Place,
    pub(crate) lease: i64,
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    /// With so many other waiters before it.
    Waits(usize),
}

/// Something that happened to a party.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: EventKind,
    pub(crate) seq: u64,
    pub(crate) party: Party,
    held: bool,
}

impl Change {
    pub(crate) fn event(&self, name: &Name) -> Event {
        let record = self.party.record.as_ref();
        Event {
            kind: self.kind,
            name: name.clone(),
            owner: self.party.owner(),
            host: record.map(|r| r.host.clone()).unwrap_or_default(),
            pid: record.map_or(0, |r| r.pid),
            label: record.and_then(Record::told_label),
            token: self.held.then(|| Token::new(self.seq, 0)).flatten(),
            value: record.and_then(Record::published),
        }
    }
}

/// One name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirror {
    /// Claims by their create revision.
    pub(crate) line: BTreeMap<u64, Party>,
    pub(crate) delays: BTreeMap<Seat, Delay>,
    /// The last hold that ended.
    last: Option<Predecessor>,
    /// The last claim that was granted, as far as it was written down.
    held: Option<Predecessor>,
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

    fn delay(&mut self, seat: Seat, kv: &KeyValue) {
        if let Some(record) = Record::read(&kv.value) {
            let delay = Delay {
                place: record.place(),
                lease: kv.lease,
            };
            self.delays.insert(seat, delay);
        }
    }

    /// The delays that run: of claims that are in the line no more.
    pub(crate) fn running(&self) -> impl Iterator<Item = &Delay> {
        let live = |seat| self.line.values().any(|party| party.seat == Some(seat));
        self.delays
            .iter()
            .filter(move |(seat, _)| !live(**seat))
            .map(|(_, delay)| delay)
    }

    fn taken(&self) -> u64 {
        match self.delays.is_empty() {
            true => 0,
            false => self
                .running()
                .map(|delay| u64::from(delay.place.units))
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
        let places = line.chain(self.delays.values().map(|delay| delay.place));
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

    /// The events of one watch response, of this name only: what they changed, in order.
    pub(crate) fn apply(&mut self, keys: &Keys, name: &Name, events: &[WatchEvent]) -> Vec<Change> {
        let mut changes = Vec::new();
        let of = |event: &WatchEvent| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        for step in events.chunk_by(|a, b| of(a) == of(b)) {
            let at = step.first().map_or(0, of);
            if revision(at) > self.revision {
                self.step(keys, name, step, &mut changes);
                self.revision = revision(at);
            }
        }
        changes
    }

    /// What happened at one revision.
    fn step(&mut self, keys: &Keys, name: &Name, step: &[WatchEvent], changes: &mut Vec<Change>) {
        let held: Vec<u64> = self.line.keys().take(self.holders()).copied().collect();
        let mut words: Vec<(Option<RequestId>, Word)> = Vec::new();
        let mut left = Vec::new();
        for event in step {
            let Some(kv) = &event.kv else { continue };
            let Some((whose, kind)) = keys.parse(&kv.key) else {
                continue;
            };
            if whose != *name {
                continue;
            }
            match (kind, event.is_deletion()) {
                (Kind::Claim(_) | Kind::Foreign, true) => {
                    let found = self.line.iter().find(|(_, party)| party.key == kv.key);
                    left.extend(found.map(|(seq, _)| *seq));
                }
                (Kind::Claim(_) | Kind::Foreign, false) => self.put(kind, kv.clone(), changes),
                (Kind::Delay(seat), true) => drop(self.delays.remove(&seat)),
                (Kind::Delay(seat), false) => self.delay(seat, kv),
                (Kind::Ended, false) => words.extend(Word::read(&kv.value).map(|w| (None, w))),
                (Kind::Gone(request), false) => {
                    words.extend(Word::read(&kv.value).map(|w| (Some(request), w)));
                }
                (Kind::Held, false) => self.held = self::held(kv),
                (Kind::Ended | Kind::Gone(_) | Kind::Held, true) => {}
            }
        }
        for seq in left {
            let Some(party) = self.line.remove(&seq) else {
                continue;
            };
            let word = words.iter().find(|(gone, word)| match gone {
                Some(request) => party.request() == Some(*request),
                None => word.seq == seq,
            });
            let held = held.contains(&seq);
            let ending = match (&party.record, word) {
                (_, Some((_, word))) => word.ending(),
                // Other libraries leave no word; they delete the key, or their lease ends.
                (None, None) => Ending::Released,
                (Some(_), None) => Ending::Expired,
            };
            if held {
                self.last = Some(Predecessor {
                    ending,
                    seq,
                    owner: party.owner(),
                });
            }
            let kind = match (held, ending) {
                (false, Ending::Released) => EventKind::Withdrawn,
                (true, Ending::Released) => EventKind::Released,
                (_, Ending::Expired) => EventKind::Expired,
                (_, Ending::Evicted) => EventKind::Evicted,
            };
            changes.push(Change {
                kind,
                seq,
                party,
                held,
            });
        }
        let holders = self.holders();
        let at = step.iter().find_map(|event| event.kv.as_ref());
        let at = at.map_or(0, |kv| revision(kv.mod_revision));
        for (place, (seq, party)) in self.line.iter().enumerate() {
            let (holds, party) = (place < holders, party.clone());
            let (seq, kind) = (*seq, EventKind::Granted);
            if holds && !held.contains(&seq) {
                changes.push(Change {
                    kind,
                    seq,
                    party,
                    held: true,
                });
            } else if !holds && seq == at {
                let kind = EventKind::Queued;
                changes.push(Change {
                    kind,
                    seq,
                    party,
                    held: false,
                });
            }
        }
    }

    fn put(&mut self, kind: Kind, kv: KeyValue, changes: &mut Vec<Change>) {
        let (seq, holders) = (revision(kv.create_revision), self.holders());
        let new = party(kind, kv);
        let Some(old) = self.line.insert(seq, new.clone()) else {
            return;
        };
        let value = |party: &Party| party.record.as_ref().and_then(Record::published);
        if value(&old) != value(&new) {
            let place = self.line.keys().position(|other| *other == seq);
            changes.push(Change {
                kind: EventKind::Published,
                seq,
                party: new,
                held: place.is_some_and(|place| place < holders),
            });
        }
    }
}

fn party(kind: Kind, kv: KeyValue) -> Party {
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
