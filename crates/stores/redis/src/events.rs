//! Live events: scripts publish them while a client watches.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::store::{Event, EventKind, EventSender, Events};
use clinch_core::{Name, Result, Token, keeper};

use crate::keys::Keys;
use crate::record::{self, Reader};
use crate::store::RedisStore;

/// A stream of the events of names with this prefix.
pub(crate) async fn watch(store: &RedisStore, prefix: &str) -> Result<Events> {
    let (sender, events) = store.pushes.watchers.add(prefix);
    let (servers, pushes) = (store.servers.clone(), store.pushes.clone());
    let channel = store.keys.events.clone();
    let subscribing = async move {
        servers.watch(&channel).await?;
        let ending = async move {
            // A sender that is kept would keep the stream open after the store has closed.
            tokio::select! {
                () = sender.closed() => {}
                () = pushes.closed() => return,
            }
            if !pushes.watchers.any() {
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

/// The streams of events of this client.
#[derive(Debug)]
pub(crate) struct Watchers {
    keys: Option<Keys>,
    streams: Mutex<Vec<(String, EventSender)>>,
    /// Set on a cluster: each server forwards every message, so each arrives several times.
    duplicates: Option<Mutex<Recent>>,
}

impl Watchers {
    pub(crate) fn new(keys: Option<Keys>) -> Self {
        Self {
            keys,
            streams: Mutex::default(),
            duplicates: None,
        }
    }

    pub(crate) fn of_cluster(keys: Keys) -> Self {
        Self {
            duplicates: Some(Mutex::default()),
            ..Self::new(Some(keys))
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<(String, EventSender)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel of events; empty if there are none.
    pub(crate) fn channel(&self) -> &str {
        self.keys.as_ref().map_or("", |keys| &keys.events)
    }

    fn add(&self, prefix: &str) -> (EventSender, Events) {
        let (sender, events) = Events::channel();
        self.streams().push((prefix.to_owned(), sender.clone()));
        (sender, events)
    }

    /// Whether a stream is open.
    pub(crate) fn any(&self) -> bool {
        let mut streams = self.streams();
        streams.retain(|(_, stream)| !stream.is_closed());
        !streams.is_empty()
    }

    /// Passes a message on to the streams with a matching prefix.
    pub(crate) fn publish(&self, message: &[u8]) {
        if let Some(recent) = &self.duplicates {
            let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
            if !recent.insert(message) {
                return;
            }
        }
        let Some(event) = self.keys.as_ref().and_then(|keys| decode(message, keys)) else {
            return;
        };
        self.streams().retain(|(prefix, stream)| {
            !event.name.as_str().starts_with(prefix.as_str()) || stream.send(event.clone())
        });
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.streams().clear();
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
    Some(Event {
        kind,
        name,
        owner: entry.owner.clone(),
        host: entry.client.host.clone(),
        pid: entry.client.pid,
        label: entry.label.clone(),
        token: entry.seq().and_then(|seq| Token::new(seq, 0)),
        value: entry.value.clone(),
    })
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
