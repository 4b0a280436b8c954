//! What events of a watch mean for a name.

use clinch_core::store::{Ending, Event, EventKind, Predecessor};
use clinch_core::{Name, RequestId, Token};

use crate::keys::{Keys, Kind};
use crate::mirror::{self, Mirror, Party, revision};
use crate::record::{Record, Word};
use crate::wire::{KeyValue, WatchEvent};

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

impl Mirror {
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
                (Kind::Held, false) => self.held = mirror::held(kv),
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
        let new = mirror::party(kind, kv);
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
