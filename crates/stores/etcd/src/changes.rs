//! Applies watch events to the local copy of a name, and derives lock events from them.

use clinch_core::store::{Ending, Event, EventKind, Predecessor};
use clinch_core::{Name, RequestId, Token};

use crate::keys::{Keys, Kind};
use crate::lock_state::{LockState, Participant};
use crate::predecessor::{EndRecord, read_grant_record};
use crate::record::Record;
use crate::wire::{KeyValue, WatchEvent, revision};

/// A change of one claim.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: EventKind,
    pub(crate) seq: u64,
    pub(crate) participant: Participant,
    /// Whether the claim holds, or held until now.
    held: bool,
}

impl Change {
    pub(crate) fn event(&self, name: &Name) -> Event {
        let mut event = Event::new(self.kind, name.clone(), self.participant.owner());
        event.token = self.held.then(|| Token::new(self.seq, 0)).flatten();
        if let Some(record) = &self.participant.record {
            event.host = record.host.clone();
            event.pid = record.pid;
            event.label = record.shared_label();
            event.value = record.shared_value();
        }
        event
    }
}

/// Splits the events of a watch response by revision. One transaction, or one expired lease, is one step.
pub(crate) fn steps(events: &[WatchEvent]) -> impl Iterator<Item = (u64, &[WatchEvent])> {
    let at = |event: &WatchEvent| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    events
        .chunk_by(move |a, b| at(a) == at(b))
        .map(move |step| (revision(step.first().map_or(0, at)), step))
}

impl LockState {
    /// Applies the events of a watch response that concern this name; returns the changes in order.
    pub(crate) fn apply(&mut self, keys: &Keys, name: &Name, events: &[WatchEvent]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (at, step) in steps(events) {
            if at > self.revision {
                self.apply_step(keys, name, at, step, &mut changes);
                self.revision = at;
            }
        }
        changes
    }

    /// Applies the events of one revision.
    fn apply_step(
        &mut self,
        keys: &Keys,
        name: &Name,
        at: u64,
        step: &[WatchEvent],
        changes: &mut Vec<Change>,
    ) {
        let held: Vec<u64> = self.queue.keys().take(self.holders()).copied().collect();
        let mut ends: Vec<(Option<RequestId>, EndRecord)> = Vec::new();
        let mut deleted = Vec::new();
        for event in step {
            let Some(kv) = &event.kv else { continue };
            let kind = match keys.parse(&kv.key) {
                Some((of, kind)) if of == *name => kind,
                _ => continue,
            };
            match (kind, event.is_deletion()) {
                (Kind::Claim(_) | Kind::Foreign, true) => {
                    let found = self.queue.iter().find(|(_, claim)| claim.key == kv.key);
                    deleted.extend(found.map(|(seq, _)| *seq));
                }
                (Kind::Claim(_) | Kind::Foreign, false) => {
                    changes.extend(self.put(kind, kv.clone()));
                }
                (Kind::Delay(slot), true) => drop(self.delays.remove(&slot)),
                (Kind::Delay(slot), false) => self.add_delay(slot, kv),
                (Kind::Ended, false) => ends.extend(EndRecord::read(&kv.value).map(|e| (None, e))),
                (Kind::Gone(request), false) => {
                    ends.extend(EndRecord::read(&kv.value).map(|e| (Some(request), e)));
                }
                (Kind::Held, false) => self.last_grant = read_grant_record(kv),
                (Kind::Ended | Kind::Gone(_) | Kind::Held, true) => {}
            }
        }
        for seq in deleted {
            let Some(participant) = self.queue.remove(&seq) else {
                continue;
            };
            let held = held.contains(&seq);
            let ending = ending(seq, &participant, &ends);
            if held {
                self.last_end = Some(Predecessor::new(ending, seq, participant.owner()));
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
                participant,
                held,
            });
        }
        let holders = self.holders();
        for (position, (seq, participant)) in self.queue.iter().enumerate() {
            let holds = position < holders;
            let kind = match holds {
                true if !held.contains(seq) => EventKind::Granted,
                false if *seq == at => EventKind::Queued,
                _ => continue,
            };
            changes.push(Change {
                kind,
                seq: *seq,
                participant: participant.clone(),
                held: holds,
            });
        }
    }

    /// Puts a claim; a changed value of an existing claim is a change of its own.
    fn put(&mut self, kind: Kind, kv: KeyValue) -> Option<Change> {
        let (seq, holders) = (revision(kv.create_revision), self.holders());
        let new = Participant::read(kind, kv);
        let old = self.queue.insert(seq, new.clone())?;
        let value = |claim: &Participant| claim.record.as_ref().and_then(Record::shared_value);
        let position = self.queue.keys().position(|other| *other == seq);
        (value(&old) != value(&new)).then(|| Change {
            kind: EventKind::Published,
            seq,
            participant: new,
            held: position.is_some_and(|position| position < holders),
        })
    }
}

/// How a deleted claim ended, by the end records of the same revision.
fn ending(seq: u64, claim: &Participant, ends: &[(Option<RequestId>, EndRecord)]) -> Ending {
    let end = ends.iter().find(|(gone, end)| match gone {
        Some(request) => claim.request() == Some(*request),
        None => end.seq == seq,
    });
    match (&claim.record, end) {
        (_, Some((_, end))) => end.ending(),
        // Other libraries leave no end record: they delete the key, or their lease expires.
        (None, None) => Ending::Released,
        (Some(_), None) => Ending::Expired,
    }
}
