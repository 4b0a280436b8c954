//! Live events: one recursive watch for each listener.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Event, EventSender, Events};
use clinch_core::{Name, Result, keeper};
use zookeeper_client::{AddWatchMode, EventType, PersistentWatcher, SessionState, WatchedEvent};

use crate::core::Core;
use crate::error::sending;
use crate::inspect;
use crate::places::Child;
use crate::record::{Record, Word};
use crate::scene::{Actor, Scene};
use crate::session::Session;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// What happens to names that start with `prefix`, from now on.
pub(crate) async fn listen(core: &Arc<Core>, prefix: &str) -> Result<Events> {
    let (sender, events) = Events::channel();
    let mut listener = Listener {
        core: core.clone(),
        prefix: prefix.to_owned(),
        sender,
        scenes: HashMap::new(),
    };
    let (session, watcher) = listener.watch().await?;
    // What is there already has happened before.
    listener.load(&mut Vec::new()).await?;
    keeper::spawn(async move { listener.run(session, watcher).await })?;
    Ok(events)
}

struct Listener {
    core: Arc<Core>,
    prefix: String,
    sender: EventSender,
    /// By the folder's own name.
    scenes: HashMap<String, Scene>,
}

impl Listener {
    async fn watch(&self) -> Result<(Arc<Session>, PersistentWatcher)> {
        let session = self.core.sessions.base().await?;
        let watched = async {
            let client = session.client(1)?;
            let root = self.core.paths.root();
            let watching = client.watch(root, AddWatchMode::PersistentRecursive);
            session.within(watching).await?
        };
        let watcher = watched.await.map_err(sending)?;
        Ok((session, watcher))
    }

    async fn run(mut self, session: Arc<Session>, watcher: PersistentWatcher) {
        let (mut session, mut watcher) = (session, watcher);
        loop {
            let event = tokio::select! {
                event = watcher.changed() => event,
                () = self.sender.closed() => return,
            };
            let ended = event.session_state.is_terminated();
            if !ended {
                if self.hear(&session, event).await.is_none() {
                    return;
                }
                continue;
            }
            // The session has ended: listen in a new one, and see what was missed.
            (session, watcher) = loop {
                if self.core.sessions.is_closed() || self.sender.is_closed() {
                    return;
                }
                match self.watch().await {
                    Ok(watching) => break watching,
                    Err(_) => self.core.clock.sleep(PAUSE).await,
                }
            };
            if self.catch_up().await.is_none() {
                return;
            }
        }
    }

    /// Tells what an event of the driver means; `None` when nobody listens any more.
    async fn hear(&mut self, session: &Session, event: WatchedEvent) -> Option<()> {
        let mut out = Vec::new();
        if event.event_type == EventType::Session {
            // Events of the time without a connection are lost.
            return match event.session_state {
                SessionState::SyncConnected => self.catch_up().await,
                _ => Some(()),
            };
        }
        let below = event.path.strip_prefix(self.core.paths.root());
        let (folder, child) = match below.and_then(|path| path.strip_prefix('/')) {
            Some(path) => path.split_once('/').unwrap_or((path, "")),
            None => return Some(()),
        };
        let Some(name) = self.name(folder) else {
            return Some(());
        };
        let scene = self
            .scenes
            .entry(folder.to_owned())
            .or_insert_with(|| Scene::new(name, Vec::new()));
        match (event.event_type, child) {
            (EventType::NodeDeleted, "") => {
                self.scenes.remove(folder);
            }
            (EventType::NodeDataChanged, "") => scene.spoke(),
            (_, "") => {}
            (EventType::NodeCreated, child) => {
                if let Some(parsed) = Child::parse(child)
                    && !scene.knows(child)
                {
                    let (record, seq) = read(session, &event.path, &parsed).await;
                    scene.came(Actor::new(parsed, record, seq), &mut out);
                }
            }
            (EventType::NodeDataChanged, child) => {
                if let Some(parsed) = Child::parse(child) {
                    let (record, _) = read(session, &event.path, &parsed).await;
                    scene.changed(child, record, &mut out);
                }
            }
            (EventType::NodeDeleted, child) => scene.went(child, &mut out),
            _ => {}
        }
        self.tell(out)
    }

    fn name(&self, folder: &str) -> Option<Name> {
        let name = self.core.paths.name(folder)?;
        name.as_str().starts_with(&self.prefix).then_some(name)
    }

    fn tell(&self, out: Vec<Event>) -> Option<()> {
        out.into_iter()
            .all(|event| self.sender.send(event))
            .then_some(())
    }

    /// Sees what has changed while nothing was heard.
    async fn catch_up(&mut self) -> Option<()> {
        let mut out = Vec::new();
        while self.load(&mut out).await.is_err() {
            if self.core.sessions.is_closed() || self.sender.is_closed() {
                return None;
            }
            self.core.clock.sleep(PAUSE).await;
        }
        self.tell(out)
    }

    /// Brings the scenes up to what is there.
    async fn load(&mut self, out: &mut Vec<Event>) -> Result<()> {
        let names = inspect::names(&self.core, &self.prefix).await?;
        let parties = inspect::read(&self.core, &names).await?;
        let mut found: HashMap<String, (Name, Vec<Actor>)> = HashMap::new();
        for (name, parties) in names.into_iter().zip(parties) {
            // A folder with something else in it is nobody's lock.
            let Ok(parties) = parties else { continue };
            let path = self.core.paths.folder(&name);
            let folder = path.rsplit('/').next().unwrap_or_default().to_owned();
            let actors = parties.all.into_iter().map(|party| {
                let seq = party.seq();
                Actor::new(party.child, party.record, Some(seq))
            });
            found.insert(folder, (name, actors.collect()));
        }
        for (folder, scene) in &mut self.scenes {
            let there = found.get(folder).map(|(_, actors)| actors.as_slice());
            let there = there.unwrap_or_default();
            let gone = |actor: &&Actor| !there.iter().any(|a| a.child.name == actor.child.name);
            let gone: Vec<_> = scene.actors().iter().filter(gone).cloned().collect();
            for actor in gone {
                scene.went(&actor.child.name, out);
            }
        }
        for (folder, (name, actors)) in found {
            match self.scenes.get_mut(&folder) {
                Some(scene) => actors.into_iter().for_each(|actor| scene.came(actor, out)),
                None => {
                    let mut scene = Scene::new(name, Vec::new());
                    actors.into_iter().for_each(|actor| scene.came(actor, out));
                    self.scenes.insert(folder, scene);
                }
            }
        }
        Ok(())
    }
}

/// What a node says, or what the folder's word says of it when it is gone already.
async fn read(session: &Session, path: &str, child: &Child) -> (Option<Record>, Option<u64>) {
    let found = async {
        let client = session.client(2)?;
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let asked = (client.get_data(path), client.get_data(folder));
        let asked = async { tokio::join!(asked.0, asked.1) };
        session.within(asked).await
    };
    match found.await {
        Ok((Ok((data, stat)), _)) => {
            let seq = u64::try_from(stat.czxid).unwrap_or_default();
            (Record::read(&data), Some(seq))
        }
        Ok((Err(_), Ok((data, _)))) => {
            let word = Word::read(&data);
            let about = |word: &Word| child.request().is_some_and(|r| word.is_about(r));
            let word = word.filter(about);
            let seq = word.as_ref().map(|word| word.seq);
            (word.and_then(|word| word.record), seq)
        }
        _ => (None, None),
    }
}
