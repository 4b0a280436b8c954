//! Live events: scripts publish what happens, when somebody watches.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clinch_core::store::{Event, EventKind, EventSender, Events};
use clinch_core::{Name, Token};

use crate::keys::Keys;
use crate::record::{self, Reader};

/// On a cluster each server passes every message on, so each comes several times.
const REMEMBERED: usize = 1024;

/// Who watches in this client.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Watching>);

#[derive(Debug, Default)]
struct Watching {
    keys: Option<Keys>,
    watchers: Vec<(String, EventSender)>,
    seen: VecDeque<Vec<u8>>,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of the events of names with this prefix.
    pub(crate) fn add(&self, prefix: &str, keys: &Keys) -> (EventSender, Events) {
        let (sender, events) = Events::channel();
        let mut watching = self.lock();
        watching.keys = Some(keys.clone());
        watching.watchers.push((prefix.to_owned(), sender.clone()));
        (sender, events)
    }

    /// Whether somebody watches.
    pub(crate) fn any(&self) -> bool {
        let mut watching = self.lock();
        watching
            .watchers
            .retain(|(_, watcher)| !watcher.is_closed());
        !watching.watchers.is_empty()
    }

    /// Something has happened.
    pub(crate) fn tell(&self, message: &[u8]) {
        let mut watching = self.lock();
        if watching.seen.iter().any(|seen| seen == message) {
            return;
        }
        if watching.seen.len() >= REMEMBERED {
            watching.seen.pop_front();
        }
        watching.seen.push_back(message.to_owned());
        let Some(event) = watching
            .keys
            .as_ref()
            .and_then(|keys| decode(message, keys))
        else {
            return;
        };
        watching.watchers.retain(|(prefix, watcher)| {
            !event.name.as_str().starts_with(prefix.as_str()) || watcher.send(event.clone())
        });
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        *self.lock() = Watching::default();
    }
}

/// kind, time, key and record, as the script packs them.
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
