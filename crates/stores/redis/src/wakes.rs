//! What a client hears: grants of its claims, and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clinch_core::store::{Wake, WakeBook};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

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
    /// The greatest number seen: a server that lost its data and whose clock is behind must not
    /// give a smaller one.
    greatest: AtomicU64,
    /// Who waits for the releases of others, in their layouts.
    pub(crate) rooms: Rooms,
    closed: watch::Sender<bool>,
}

impl Ears {
    pub(crate) fn new(channel: String, events: String) -> Arc<Self> {
        Arc::new(Self {
            channel,
            events,
            book: WakeBook::default(),
            watchers: Watchers::default(),
            greatest: AtomicU64::default(),
            rooms: Rooms::default(),
            closed: watch::Sender::new(false),
        })
    }

    /// What a new connection is to listen to.
    pub(crate) fn channels(&self) -> Vec<String> {
        if self.is_closed() {
            return Vec::new();
        }
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
        let awaited = self.book.is_awaited() || self.watchers.any() || self.rooms.any();
        awaited && !self.is_closed()
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
            if let Some(grant) = &grant {
                self.saw(grant.seq);
            }
            self.book
                .deliver(request, grant.map_or(Wake::Hint, Wake::Granted));
        }
    }

    /// A grant with this number was heard of.
    pub(crate) fn saw(&self, seq: u64) {
        self.greatest.fetch_max(seq, Ordering::Relaxed);
    }

    /// The greatest number heard of so far.
    pub(crate) fn greatest(&self) -> u64 {
        self.greatest.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Completes when the store is closed or dropped.
    pub(crate) async fn closed(&self) {
        // It cannot fail: the sender is our own.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        self.book.close();
        self.watchers.close();
        self.rooms.close();
    }
}
