//! Live events: one recursive watch for each listener.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Event, EventSender, Events};
use clinch_core::{Name, Result, keeper};
use clinch_kit::backoff::Backoff;
use zookeeper_client::{AddWatchMode, EventType, PersistentWatcher, SessionState, WatchedEvent};

use crate::client::Client;
use crate::connection::Session;
use crate::error::request_error;
use crate::inspect;
use crate::keys::Child;
use crate::observed_lock::{ObservedLock, Participant};
use crate::record::{FolderRecord, Record};

/// The first pause after a failure, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Handles [`Admin::events`](clinch_core::store::Admin::events).
pub(crate) async fn listen(client: &Arc<Client>, prefix: &str) -> Result<Events> {
    let (sender, events) = Events::channel();
    let mut listener = Listener {
        client: client.clone(),
        prefix: prefix.to_owned(),
        sender,
        locks: HashMap::new(),
    };
    let (session, watcher) = listener.watch().await?;
    // What exists already happened before.
    listener.load(&mut Vec::new()).await?;
    keeper::spawn(async move {
        listener.run(session, watcher).await;
    })?;
    Ok(events)
}

struct Listener {
    client: Arc<Client>,
    prefix: String,
    sender: EventSender,
    /// By the name of the folder.
    locks: HashMap<String, ObservedLock>,
}

impl Listener {
    async fn watch(&self) -> Result<(Arc<Session>, PersistentWatcher)> {
        let session = self.client.sessions.base().await?;
        let watched = async {
            let driver = session.driver(1)?;
            let root = self.client.paths.root();
            let watching = driver.watch(root, AddWatchMode::PersistentRecursive);
            session.with_timeout(watching).await?
        };
        let watcher = watched.await.map_err(request_error)?;
        Ok((session, watcher))
    }

    /// Runs until `None`: the stream was dropped, or the store closed.
    async fn run(mut self, session: Arc<Session>, watcher: PersistentWatcher) -> Option<()> {
        let (mut session, mut watcher) = (session, watcher);
        loop {
            let event = tokio::select! {
                event = watcher.changed() => event,
                () = self.sender.closed() => return None,
            };
            if event.session_state.is_terminated() {
                (session, watcher) = self.watch_again().await?;
                self.catch_up().await?;
            } else {
                self.handle(&session, event).await?;
            }
        }
    }

    /// Watches in a new session.
    async fn watch_again(&self) -> Option<(Arc<Session>, PersistentWatcher)> {
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        while self.is_open() {
            match self.watch().await {
                Ok(watching) => return Some(watching),
                Err(_) => backoff.wait(&self.client.clock).await,
            }
        }
        None
    }

    fn is_open(&self) -> bool {
        !self.client.sessions.closed.is_closed() && !self.sender.is_closed()
    }

    /// Turns an event of the driver into events of locks; `None` if the stream was dropped.
    async fn handle(&mut self, session: &Session, event: WatchedEvent) -> Option<()> {
        let mut out = Vec::new();
        if event.event_type == EventType::Session {
            // Events during the time without a connection are lost.
            return match event.session_state {
                SessionState::SyncConnected => self.catch_up().await,
                _ => Some(()),
            };
        }
        let below = event.path.strip_prefix(self.client.paths.root());
        let (folder, child) = match below.and_then(|path| path.strip_prefix('/')) {
            Some(path) => path.split_once('/').unwrap_or((path, "")),
            None => return Some(()),
        };
        let Some(name) = self.name(folder) else {
            return Some(());
        };
        let lock = self
            .locks
            .entry(folder.to_owned())
            .or_insert_with(|| ObservedLock::new(name));
        match (event.event_type, child) {
            (EventType::NodeDeleted, "") => {
                self.locks.remove(folder);
            }
            (EventType::NodeDataChanged, "") => lock.folder_written(),
            (_, "") => {}
            (EventType::NodeCreated, child) => {
                if let Some(parsed) = Child::parse(child)
                    && !lock.contains(child)
                {
                    let (record, seq) = read(session, &event.path, &parsed).await;
                    lock.node_created(Participant::new(parsed, record, seq), &mut out);
                }
            }
            (EventType::NodeDataChanged, child) => {
                if let Some(parsed) = Child::parse(child) {
                    let (record, _) = read(session, &event.path, &parsed).await;
                    lock.node_written(child, record, &mut out);
                }
            }
            (EventType::NodeDeleted, child) => lock.node_deleted(child, &mut out),
            _ => {}
        }
        self.send(out)
    }

    fn name(&self, folder: &str) -> Option<Name> {
        let name = self.client.paths.name(folder)?;
        name.as_str().starts_with(&self.prefix).then_some(name)
    }

    fn send(&self, out: Vec<Event>) -> Option<()> {
        out.into_iter()
            .all(|event| self.sender.send(event))
            .then_some(())
    }

    /// Sends events for what changed while there was no watch.
    async fn catch_up(&mut self) -> Option<()> {
        let mut out = Vec::new();
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        while self.load(&mut out).await.is_err() {
            if !self.is_open() {
                return None;
            }
            backoff.wait(&self.client.clock).await;
        }
        self.send(out)
    }

    /// Updates the observed locks to what exists.
    async fn load(&mut self, out: &mut Vec<Event>) -> Result<()> {
        let names = inspect::names(&self.client, &self.prefix).await?;
        let parties = inspect::read(&self.client, &names).await?;
        let mut found: HashMap<String, (Name, Vec<Participant>)> = HashMap::new();
        for (name, parties) in names.into_iter().zip(parties) {
            // A folder with foreign nodes is not a lock.
            let Ok(parties) = parties else { continue };
            let path = self.client.paths.folder(&name);
            let folder = path.rsplit('/').next().unwrap_or_default().to_owned();
            let participants = parties.all.into_iter().map(|party| {
                let seq = party.seq();
                Participant::new(party.child, party.record, Some(seq))
            });
            found.insert(folder, (name, participants.collect()));
        }
        for (folder, lock) in &mut self.locks {
            let present = found.get(folder).map(|(_, present)| present.as_slice());
            let is_present = |child: &str| {
                let mut present = present.unwrap_or_default().iter();
                present.any(|participant| participant.child.name == child)
            };
            for child in lock.children() {
                if !is_present(&child) {
                    lock.node_deleted(&child, out);
                }
            }
        }
        for (folder, (name, participants)) in found {
            let lock = self.locks.entry(folder);
            let lock = lock.or_insert_with(|| ObservedLock::new(name));
            for participant in participants {
                lock.node_created(participant, out);
            }
        }
        Ok(())
    }
}

/// The record and sequence number of a node; from the folder record if the node is gone.
async fn read(session: &Session, path: &str, child: &Child) -> (Option<Record>, Option<u64>) {
    let found = async {
        let driver = session.driver(2)?;
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let requests = (driver.get_data(path), driver.get_data(folder));
        let replies = async { tokio::join!(requests.0, requests.1) };
        session.with_timeout(replies).await
    };
    match found.await {
        Ok((Ok((data, stat)), _)) => {
            let seq = u64::try_from(stat.czxid).unwrap_or_default();
            (Record::read(&data), Some(seq))
        }
        Ok((Err(_), Ok((data, _)))) => {
            let is_meant = |one: &FolderRecord| child.request().is_some_and(|r| one.is_about(r));
            let found = FolderRecord::read(&data).filter(is_meant);
            let seq = found.as_ref().map(|found| found.seq);
            (found.and_then(|found| found.record), seq)
        }
        _ => (None, None),
    }
}
