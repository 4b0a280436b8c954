//! What a client hears: grants of its claims, and events.

use std::sync::Arc;

use clinch_core::store::{Wake, WakeBook};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::events::Watchers;
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
    closed: watch::Sender<bool>,
}

impl Ears {
    pub(crate) fn new(channel: String, events: String) -> Arc<Self> {
        Arc::new(Self {
            channel,
            events,
            book: WakeBook::default(),
            watchers: Watchers::default(),
            closed: watch::Sender::default(),
        })
    }

    /// What a new connection is to listen to.
    pub(crate) fn channels(&self) -> Vec<String> {
        let mut channels = vec![self.channel.clone()];
        if self.watchers.any() {
            channels.push(self.events.clone());
        }
        channels.retain(|channel| !channel.is_empty());
        channels
    }

    /// Whether a lost connection should be made again at once.
    pub(crate) fn is_needed(&self) -> bool {
        !*self.closed.borrow() && (self.book.is_awaited() || self.watchers.any())
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
        } else if let Some((request, grant)) = record::message(&message) {
            self.book
                .deliver(request, grant.map_or(Wake::Hint, Wake::Granted));
        }
    }

    /// Turns true when the store is closed, or ends without it.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        self.book.close();
        self.watchers.close();
    }
}
