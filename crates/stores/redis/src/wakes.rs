//! What a client hears: grants of its claims, and events.

use std::sync::{Arc, Mutex, PoisonError};

use clinch_core::store::{Wake, WakeBook};
use redis::{PushInfo, PushKind, Value};

use crate::events::Watchers;
use crate::guest::Rooms;
use crate::record;

/// All messages of one client, from all its connections.
#[derive(Debug)]
pub(crate) struct Ears {
    /// The channel on which this client is told of its grants.
    channel: String,
    /// The channel of events.
    events: String,
    /// Who waits.
    pub(crate) book: WakeBook,
    /// Who watches.
    pub(crate) watchers: Watchers,
    /// Who waits for the releases of others, in their layouts.
    pub(crate) rooms: Rooms,
    closed: Mutex<bool>,
}

impl Ears {
    pub(crate) fn new(channel: String, events: String) -> Arc<Self> {
        Arc::new(Self {
            channel,
            events,
            book: WakeBook::default(),
            watchers: Watchers::default(),
            rooms: Rooms::default(),
            closed: Mutex::default(),
        })
    }

    /// What a new connection is to listen to.
    pub(crate) fn channels(&self) -> Vec<String> {
        let mut channels = vec![self.channel.clone()];
        if self.watchers.any() {
            channels.push(self.events.clone());
        }
        channels.extend(self.rooms.channels());
        channels.retain(|channel| !channel.is_empty());
        channels
    }

    /// Whether a lost connection should be made again at once.
    pub(crate) fn is_needed(&self) -> bool {
        let closed = *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        !closed && (self.book.is_awaited() || self.watchers.any() || self.rooms.any())
    }

    /// Messages may have been lost: whoever waits should look again.
    pub(crate) fn missed(&self) {
        self.book.hint_all();
        self.rooms.hint_all();
    }

    /// A message has come.
    pub(crate) fn hear(&self, push: PushInfo) {
        if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
            return;
        }
        let mut data = push.data.into_iter();
        let (Some(Value::BulkString(channel)), Some(Value::BulkString(message))) =
            (data.next(), data.next())
        else {
            return;
        };
        if channel == self.events.as_bytes() {
            self.watchers.tell(&message);
        } else if self.channel.is_empty() {
            self.rooms.tell(&channel);
        } else if let Some((request, grant)) = record::message(&message) {
            self.book
                .deliver(request, grant.map_or(Wake::Hint, Wake::Granted));
        }
    }

    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.book.close();
        self.watchers.close();
        self.rooms.close();
    }
}
