//! What a client hears: grants of its claims, and events.

use std::sync::{Arc, Mutex, PoisonError};

use clinch_core::store::{Wake, WakeBook};
use redis::{PushInfo, PushKind, Value};

use crate::events::Watchers;
use crate::record;
use crate::session::Listen;

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
    closed: Mutex<bool>,
}

impl Ears {
    pub(crate) fn new(channel: String, events: String) -> Arc<Self> {
        Arc::new(Self {
            channel,
            events,
            book: WakeBook::default(),
            watchers: Watchers::default(),
            closed: Mutex::default(),
        })
    }

    /// Whether the store has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.book.close();
        self.watchers.close();
    }
}

impl Listen for Ears {
    fn channels(&self) -> Vec<String> {
        let mut channels = vec![self.channel.clone()];
        if self.watchers.any() {
            channels.push(self.events.clone());
        }
        channels.retain(|channel| !channel.is_empty());
        channels
    }

    fn hear(&self, push: PushInfo) {
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
        } else if let Some((request, grant)) = record::message(&message) {
            self.book
                .deliver(request, grant.map_or(Wake::Hint, Wake::Granted));
        }
    }

    fn connected_again(&self) {
        // Whoever waits should look again.
        self.book.hint_all();
    }

    fn is_needed(&self) -> bool {
        !self.is_closed() && (self.book.is_awaited() || self.watchers.any())
    }
}
