//! Live events: scripts publish them while a client watches.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use clinch_core::store::{Event, EventKind, Events};
use clinch_core::{Name, Result, Token, keeper};
use clinch_kit::lock;
use clinch_kit::watchers::Watchers;

use crate::keys::Keys;
use crate::record::{self, Reader};
use crate::store::RedisStore;

/// A stream of the events of names with this prefix.
pub(crate) async fn watch(store: &RedisStore, prefix: &str) -> Result<Events> {
    let (sender, events) = store.pushes.events.watchers.add(prefix);
    let (servers, pushes) = (store.servers.clone(), store.pushes.clone());
    let channel = store.keys.events.clone();
    let subscribing = async move {
        servers.watch(&channel).await?;
        let ending = async move {
            // A sender that is kept would keep the stream open after the store has closed.
            tokio::select! {
                () = sender.closed() => {}
                () = pushes.closed.wait_closed() => return,
            }
            if !pushes.events.watchers.is_watched() {
                for session in servers.all() {
                    session.unsubscribe(&channel).await;
                }
            }
        };
        keeper::spawn(ending)
    };
    keeper::run(subscribing).await?;
    Ok(events)
}

/// Passes events on to the streams of this client.
#[derive(Debug)]
pub(crate) struct EventRouter {
    keys: Option<Keys>,
    pub(crate) watchers: Watchers,
    /// Set on a cluster: each server forwards every message, so each arrives several times.
    duplicates: Option<Mutex<Recent>>,
}

impl EventRouter {
    pub(crate) fn new(keys: Option<Keys>) -> Self {
        Self {
            keys,
            watchers: Watchers::default(),
            duplicates: None,
        }
    }

    pub(crate) fn of_cluster(keys: Keys) -> Self {
        Self {
            duplicates: Some(Mutex::default()),
            ..Self::new(Some(keys))
        }
    }

    /// The channel of events; empty if there are none.
    pub(crate) fn channel(&self) -> &str {
        self.keys.as_ref().map_or("", |keys| &keys.events)
    }

    /// Passes a message on to the streams with a matching prefix.
    pub(crate) fn publish(&self, message: &[u8]) {
        if let Some(recent) = &self.duplicates
            && !lock(recent).insert(message)
        {
            return;
        }
        if let Some(event) = self.keys.as_ref().and_then(|keys| decode(message, keys)) {
            self.watchers.deliver(&event);
        }
    }
}

/// The last messages, to recognise duplicates.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<Arc<[u8]>>,
    known: HashSet<Arc<[u8]>>,
}

impl Recent {
    const MOST: usize = 1024;

    /// Whether this message is new.
    fn insert(&mut self, message: &[u8]) -> bool {
        if self.known.contains(message) {
            return false;
        }
        if self.order.len() >= Self::MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let message: Arc<[u8]> = message.into();
        self.order.push_back(message.clone());
        self.known.insert(message)
    }
}

/// Decodes kind, time, key and record, as the script packs them.
fn decode(message: &[u8], keys: &Keys) -> Option<Event> {
    let mut reader = Reader(message);
    let kind = match reader.byte()? {
        b'q' => EventKind::Queued,
        b'g' => EventKind::Granted,
        b'r' => EventKind::Released,
        b'x' => EventKind::Expired,
        b'e' => EventKind::Evicted,
        b'w' => EventKind::Withdrawn,
        b'p' => EventKind::Published,
        _ => return None,
    };
    reader.u64()?;
    let length = reader.u16()?;
    let name: Name = keys.name(reader.take(length.into())?)?;
    let entry = record::entry(reader.0, 0, 0)?;
    let mut event = Event::new(kind, name, entry.owner.clone());
    event.token = entry.seq().and_then(|seq| Token::new(seq, 0));
    event.host.clone_from(&entry.client.host);
    event.pid = entry.client.pid;
    event.label = entry.label;
    event.value = entry.value;
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_is_recognised_among_the_last_messages() {
        let mut recent = Recent::default();
        let message = |number: usize| number.to_le_bytes();
        for number in 0..=Recent::MOST {
            assert!(recent.insert(&message(number)));
            assert!(!recent.insert(&message(number)));
        }
        assert!(!recent.insert(&message(1)));
        assert!(recent.insert(&message(0)));
        assert_eq!(recent.known.len(), Recent::MOST);
    }
}
