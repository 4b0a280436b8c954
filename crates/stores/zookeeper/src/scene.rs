//! One lock as a listener sees it: what a change of its nodes means.
//!
//! ZooKeeper tells which nodes came, went and changed, in order, and nothing else. So the order
//! itself says what happened; each of these is one transaction:
//!
//! | what changed | what happened |
//! |---|---|
//! | the folder, then a node went | it was released |
//! | the node, the folder, then the node went | it was evicted |
//! | the folder, the node, then the node went | its lease had run out |
//! | the node, then it went | it left the queue |
//! | a node went | its session had ended |
//! | the folder, then a node came | it came and holds alone |
//! | the folder, the node, and then something else | it holds alone, as it says now |

use clinch_core::store::{Event, EventKind, fifo};
use clinch_core::{Name, OwnerId, Token};

use crate::places::Child;
use crate::record::Record;

/// Somebody in line.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) child: Child,
    /// `None` for another library's, or where it went before it could be read.
    pub(crate) record: Option<Record>,
    pub(crate) seq: Option<u64>,
    holds: bool,
}

/// What has changed since the last one went.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    Folder,
    Child(String),
}

/// The line of one lock.
#[derive(Debug)]
pub(crate) struct Scene {
    name: Name,
    actors: Vec<Actor>,
    marks: Vec<Mark>,
}

impl Actor {
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
        let seq = record.and_then(|record| record.seq).or(self.seq);
        let token = seq.and_then(|seq| Token::new(seq, 0));
        let owner = record.map_or("", |record| record.owner.as_str());
        let mut event = Event::new(kind, name.clone(), OwnerId::new(owner));
        if let Some(record) = record {
            event.host.clone_from(&record.host);
            event.pid = record.pid;
            event.label.clone_from(&record.label);
            event.value.clone_from(&record.value);
        }
        event.token = token.filter(|_| self.holds);
        event
    }
}

impl Scene {
    /// A lock as it is found: nothing has happened yet.
    pub(crate) fn new(name: Name, actors: Vec<Actor>) -> Self {
        let marks = Vec::new();
        let mut scene = Self {
            name,
            actors,
            marks,
        };
        scene.settle(&mut Vec::new());
        scene
    }

    pub(crate) fn actors(&self) -> &[Actor] {
        &self.actors
    }

    pub(crate) fn knows(&self, child: &str) -> bool {
        self.actors.iter().any(|actor| actor.child.name == child)
    }

    /// Somebody came.
    pub(crate) fn came(&mut self, actor: Actor, out: &mut Vec<Event>) {
        // A lock-delay comes in the middle of an eviction.
        if !actor.child.delayed {
            self.marks.clear();
        }
        if self.knows(&actor.child.name) {
            return;
        }
        let (name, delayed) = (actor.child.name.clone(), actor.child.delayed);
        self.actors.push(actor);
        let before = out.len();
        self.settle(out);
        let granted = out.len() > before;
        let new = self.actors.iter().find(|actor| actor.child.name == name);
        if let Some(new) = new
            && !granted
            && !delayed
        {
            out.push(new.event(EventKind::Queued, &self.name));
        }
    }

    /// Its data has changed. A value that was not there before was published.
    pub(crate) fn changed(&mut self, child: &str, record: Option<Record>, out: &mut Vec<Event>) {
        self.mark(Mark::Child(child.to_owned()));
        let Some(actor) = self.find(child) else {
            return;
        };
        let Some(record) = record else { return };
        let old = actor.record.replace(record);
        let value = |record: &Option<Record>| record.as_ref().and_then(|r| r.value.clone());
        if actor.holds && value(&actor.record) != value(&old) {
            let event = actor.clone();
            out.push(event.event(EventKind::Published, &self.name));
        }
    }

    fn mark(&mut self, mark: Mark) {
        // A holder's word that it holds, which is complete: what follows is something else.
        if let [.., Mark::Folder, Mark::Child(_)] = self.marks.as_slice() {
            self.marks.clear();
        }
        self.marks.push(mark);
    }

    /// The folder's word has changed.
    pub(crate) fn spoke(&mut self) {
        self.mark(Mark::Folder);
    }

    /// Somebody went.
    pub(crate) fn went(&mut self, child: &str, out: &mut Vec<Event>) {
        let marks = std::mem::take(&mut self.marks);
        let Some(at) = self
            .actors
            .iter()
            .position(|actor| actor.child.name == child)
        else {
            return;
        };
        let actor = self.actors.remove(at);
        if !actor.child.delayed {
            let kind = kind(&actor, &marks);
            out.push(actor.event(kind, &self.name));
        }
        self.settle(out);
    }

    fn find(&mut self, child: &str) -> Option<&mut Actor> {
        self.actors
            .iter_mut()
            .find(|actor| actor.child.name == child)
    }

    /// Whoever holds now and did not before was granted.
    fn settle(&mut self, out: &mut Vec<Event>) {
        self.actors.sort_by_key(|actor| actor.child.number);
        let places = self.actors.iter().map(|actor| actor.child.place);
        let holders = fifo::holders(0, places);
        for actor in self.actors.iter_mut().take(holders) {
            if !std::mem::replace(&mut actor.holds, true) && !actor.child.delayed {
                out.push(actor.event(EventKind::Granted, &self.name));
            }
        }
    }
}

fn kind(actor: &Actor, marks: &[Mark]) -> EventKind {
    let own = Mark::Child(actor.child.name.clone());
    let mut last = marks.iter().rev();
    match (actor.holds, last.next(), last.next()) {
        (true, Some(Mark::Folder), Some(mark)) if *mark == own => EventKind::Evicted,
        (true, Some(Mark::Folder), _) => EventKind::Released,
        (false, Some(mark), _) if *mark == own => EventKind::Withdrawn,
        _ => EventKind::Expired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(number: u8) -> Actor {
        let child = Child::parse(&format!("_c_x{number}-lock-000000000{number}")).unwrap();
        Actor::new(child, None, Some(number.into()))
    }

    fn name(number: u8) -> String {
        actor(number).child.name
    }

    /// A holder and two waiters, without what happened so far.
    fn scene() -> Scene {
        Scene::new(Name::new("a").unwrap(), vec![actor(1), actor(2), actor(3)])
    }

    fn kinds(out: &[Event]) -> Vec<(EventKind, Option<u64>)> {
        let kind = |event: &Event| (event.kind, event.token.map(|token| token.seq()));
        out.iter().map(kind).collect()
    }

    #[test]
    fn the_order_of_changes_tells_how_a_hold_ended() {
        use EventKind::{Evicted, Expired, Granted, Released};
        type Before = fn(&mut Scene, &mut Vec<Event>);
        let cases: [(EventKind, Before); 4] = [
            (Released, |scene, _| scene.spoke()),
            (Evicted, |scene, out| {
                scene.changed(&name(1), None, out);
                scene.spoke();
            }),
            (Expired, |scene, out| {
                scene.spoke();
                scene.changed(&name(1), None, out);
            }),
            (Expired, |_, _| {}),
        ];
        for (kind, before) in cases {
            let (mut scene, mut out) = (scene(), Vec::new());
            before(&mut scene, &mut out);
            scene.went(&name(1), &mut out);
            assert_eq!(kinds(&out), [(kind, Some(1)), (Granted, Some(2))]);
        }
    }

    #[test]
    fn a_word_that_it_holds_is_no_ending() {
        use EventKind::{Evicted, Expired, Granted, Released};
        type Then = fn(&mut Scene, &mut Vec<Event>);
        let cases: [(EventKind, Then); 4] = [
            (Released, |scene, _| scene.spoke()),
            (Evicted, |scene, out| {
                scene.changed(&name(1), None, out);
                scene.spoke();
            }),
            (Expired, |scene, out| {
                scene.spoke();
                scene.changed(&name(1), None, out);
            }),
            (Expired, |_, _| {}),
        ];
        for (kind, then) in cases {
            let mut out = Vec::new();
            // With the node, as it comes, and later.
            let mut fresh = Scene::new(Name::new("a").unwrap(), Vec::new());
            fresh.spoke();
            fresh.came(actor(1), &mut out);
            let mut later = Scene::new(Name::new("a").unwrap(), vec![actor(1)]);
            later.spoke();
            later.changed(&name(1), None, &mut out);
            assert_eq!(kinds(&out), [(Granted, Some(1))]);
            for mut scene in [fresh, later] {
                out.clear();
                then(&mut scene, &mut out);
                scene.went(&name(1), &mut out);
                assert_eq!(kinds(&out), [(kind, Some(1))]);
            }
        }
    }

    #[test]
    fn the_queue_is_told_from_the_hold() {
        let (mut scene, mut out) = (scene(), Vec::new());
        scene.changed(&name(2), None, &mut out);
        scene.went(&name(2), &mut out);
        scene.went(&name(3), &mut out);
        scene.came(actor(4), &mut out);
        scene.came(actor(4), &mut out);
        use EventKind::{Expired, Queued, Withdrawn};
        let expected = [(Withdrawn, None), (Expired, None), (Queued, None)];
        assert_eq!(kinds(&out), expected);
    }

    #[test]
    fn a_lock_delay_is_nobody() {
        let (mut scene, mut out) = (scene(), Vec::new());
        let delay = crate::places::delay(&name(1)).unwrap();
        scene.changed(&name(1), None, &mut out);
        scene.spoke();
        scene.came(
            Actor::new(Child::parse(&delay).unwrap(), None, None),
            &mut out,
        );
        scene.went(&name(1), &mut out);
        assert_eq!(kinds(&out), [(EventKind::Evicted, Some(1))]);
        scene.went(&delay, &mut out);
        assert_eq!(kinds(&out)[1..], [(EventKind::Granted, Some(2))]);
    }
}
