//! One lock as a listener observes it: what the changes of its nodes mean.
//!
//! ZooKeeper reports in order which nodes were created, written and deleted, and nothing else. Each way to
//! change a lock is one transaction with its own order of writes:
//!
//! | order of changes | meaning |
//! |---|---|
//! | folder written, node deleted | released |
//! | node written, folder written, node deleted | evicted |
//! | folder written, node written, node deleted | its lease expired |
//! | node written, node deleted | it left the queue |
//! | node deleted | its session ended |
//! | folder written, node created | a new claim holds exclusively |
//! | folder written, node written, then anything else | the claim records that it holds exclusively |

use clinch_core::store::{Event, EventKind, fifo};
use clinch_core::{Name, OwnerId, Token};

use crate::keys::Child;
use crate::record::Record;

/// A claim of the lock.
#[derive(Debug, Clone)]
pub(crate) struct Participant {
    pub(crate) child: Child,
    /// `None` for another library's node, or if it was deleted before it was read.
    record: Option<Record>,
    seq: Option<u64>,
    holds: bool,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Write {
    Folder,
    Node(String),
}

/// The claims of one lock.
#[derive(Debug)]
pub(crate) struct ObservedLock {
    name: Name,
    participants: Vec<Participant>,
    /// The writes since a node was created or deleted.
    writes: Vec<Write>,
}

impl Participant {
    pub(crate) fn new(child: Child, record: Option<Record>, seq: Option<u64>) -> Self {
        Self {
            child,
            record,
            seq,
            holds: false,
        }
    }

    fn event(&self, kind: EventKind, name: &Name) -> Event {
        let record = self.record.as_ref();
        let owner = record.map_or("", |record| record.owner.as_str());
        let mut event = Event::new(kind, name.clone(), OwnerId::new(owner));
        if let Some(record) = record {
            event.host.clone_from(&record.host);
            event.pid = record.pid;
            event.label.clone_from(&record.label);
            event.value.clone_from(&record.value);
        }
        let seq = record.and_then(|record| record.seq).or(self.seq);
        let token = seq.and_then(|seq| Token::new(seq, 0));
        event.token = token.filter(|_| self.holds);
        event
    }
}

impl ObservedLock {
    /// A lock without claims.
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            participants: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// The names of its nodes.
    pub(crate) fn children(&self) -> Vec<String> {
        let children = self.participants.iter().map(|one| one.child.name.clone());
        children.collect()
    }

    pub(crate) fn contains(&self, child: &str) -> bool {
        self.participants.iter().any(|one| one.child.name == child)
    }

    pub(crate) fn node_created(&mut self, participant: Participant, out: &mut Vec<Event>) {
        let (child, is_delay) = (participant.child.name.clone(), participant.child.is_delay);
        // A lock-delay is created in the middle of an eviction.
        if !is_delay {
            self.writes.clear();
        }
        if self.contains(&child) {
            return;
        }
        self.participants.push(participant);
        let before = out.len();
        self.update_holders(out);
        let granted = out.len() > before;
        if !granted
            && !is_delay
            && let Some(new) = self.participants.iter().find(|one| one.child.name == child)
        {
            out.push(new.event(EventKind::Queued, &self.name));
        }
    }

    /// The data of a node has changed. A new value was published.
    pub(crate) fn node_written(
        &mut self,
        child: &str,
        record: Option<Record>,
        out: &mut Vec<Event>,
    ) {
        self.add_write(Write::Node(child.to_owned()));
        let mut participants = self.participants.iter_mut();
        let Some(participant) = participants.find(|one| one.child.name == child) else {
            return;
        };
        let Some(record) = record else { return };
        let old = participant.record.replace(record);
        let value = |record: &Option<Record>| record.as_ref().and_then(|r| r.value.clone());
        if participant.holds && value(&participant.record) != value(&old) {
            out.push(participant.event(EventKind::Published, &self.name));
        }
    }

    pub(crate) fn folder_written(&mut self) {
        self.add_write(Write::Folder);
    }

    fn add_write(&mut self, write: Write) {
        // A holder has recorded that it holds; what follows is another transaction.
        if let [.., Write::Folder, Write::Node(_)] = self.writes.as_slice() {
            self.writes.clear();
        }
        self.writes.push(write);
    }

    pub(crate) fn node_deleted(&mut self, child: &str, out: &mut Vec<Event>) {
        let writes = std::mem::take(&mut self.writes);
        let mut participants = self.participants.iter();
        let Some(at) = participants.position(|one| one.child.name == child) else {
            return;
        };
        let participant = self.participants.remove(at);
        if !participant.child.is_delay {
            let kind = ending(&participant, &writes);
            out.push(participant.event(kind, &self.name));
        }
        self.update_holders(out);
    }

    /// Reports claims that hold now and did not before.
    fn update_holders(&mut self, out: &mut Vec<Event>) {
        self.participants.sort_by_key(|one| one.child.number);
        let places = self.participants.iter().map(|one| one.child.place);
        let holders = fifo::holders(0, places);
        for participant in self.participants.iter_mut().take(holders) {
            if !std::mem::replace(&mut participant.holds, true) && !participant.child.is_delay {
                out.push(participant.event(EventKind::Granted, &self.name));
            }
        }
    }
}

/// How a claim ended, by the writes before its node was deleted.
fn ending(participant: &Participant, writes: &[Write]) -> EventKind {
    let own = Write::Node(participant.child.name.clone());
    let mut latest = writes.iter().rev();
    match (participant.holds, latest.next(), latest.next()) {
        (true, Some(Write::Folder), Some(write)) if *write == own => EventKind::Evicted,
        (true, Some(Write::Folder), _) => EventKind::Released,
        (false, Some(write), _) if *write == own => EventKind::Withdrawn,
        _ => EventKind::Expired,
    }
}

#[cfg(test)]
mod tests {
    use EventKind::{Evicted, Expired, Granted, Queued, Released, Withdrawn};

    use super::*;

    type Writes = fn(&mut ObservedLock, &mut Vec<Event>);

    /// The writes before the node of claim 1 is deleted, and their meaning.
    const ENDINGS: [(EventKind, Writes); 4] = [
        (Released, |lock, _| lock.folder_written()),
        (Evicted, |lock, out| {
            lock.node_written(&name(1), None, out);
            lock.folder_written();
        }),
        (Expired, |lock, out| {
            lock.folder_written();
            lock.node_written(&name(1), None, out);
        }),
        (Expired, |_, _| {}),
    ];

    fn participant(number: u8) -> Participant {
        let child = Child::parse(&format!("_c_x{number}-lock-000000000{number}")).unwrap();
        Participant::new(child, None, Some(number.into()))
    }

    fn name(number: u8) -> String {
        participant(number).child.name
    }

    /// A lock with claims 1 to `count`: one holder, the others wait.
    fn lock(count: u8) -> ObservedLock {
        let mut lock = ObservedLock::new(Name::new("a").unwrap());
        for number in 1..=count {
            lock.node_created(participant(number), &mut Vec::new());
        }
        lock
    }

    fn kinds(out: &[Event]) -> Vec<(EventKind, Option<u64>)> {
        let kind = |event: &Event| (event.kind, event.token.map(|token| token.seq()));
        out.iter().map(kind).collect()
    }

    #[test]
    fn the_order_of_writes_determines_the_ending() {
        for (kind, writes) in ENDINGS {
            let (mut lock, mut out) = (lock(3), Vec::new());
            writes(&mut lock, &mut out);
            lock.node_deleted(&name(1), &mut out);
            assert_eq!(kinds(&out), [(kind, Some(1)), (Granted, Some(2))]);
        }
    }

    #[test]
    fn the_record_of_a_hold_is_no_ending() {
        for (kind, writes) in ENDINGS {
            let mut out = Vec::new();
            // Written with the node, and later.
            let mut with_node = lock(0);
            with_node.folder_written();
            with_node.node_created(participant(1), &mut out);
            let mut later = lock(1);
            later.folder_written();
            later.node_written(&name(1), None, &mut out);
            assert_eq!(kinds(&out), [(Granted, Some(1))]);
            for mut lock in [with_node, later] {
                out.clear();
                writes(&mut lock, &mut out);
                lock.node_deleted(&name(1), &mut out);
                assert_eq!(kinds(&out), [(kind, Some(1))]);
            }
        }
    }

    #[test]
    fn waiters_and_holders_have_different_endings() {
        let (mut lock, mut out) = (lock(3), Vec::new());
        lock.node_written(&name(2), None, &mut out);
        lock.node_deleted(&name(2), &mut out);
        lock.node_deleted(&name(3), &mut out);
        lock.node_created(participant(4), &mut out);
        lock.node_created(participant(4), &mut out);
        let expected = [(Withdrawn, None), (Expired, None), (Queued, None)];
        assert_eq!(kinds(&out), expected);
    }

    #[test]
    fn a_lock_delay_has_no_events() {
        let (mut lock, mut out) = (lock(3), Vec::new());
        let delay = crate::keys::delay_name(&name(1)).unwrap();
        lock.node_written(&name(1), None, &mut out);
        lock.folder_written();
        let child = Child::parse(&delay).unwrap();
        lock.node_created(Participant::new(child, None, None), &mut out);
        lock.node_deleted(&name(1), &mut out);
        assert_eq!(kinds(&out), [(Evicted, Some(1))]);
        lock.node_deleted(&delay, &mut out);
        assert_eq!(kinds(&out)[1..], [(Granted, Some(2))]);
    }
}
