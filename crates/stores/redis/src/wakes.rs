//! Routes pushed messages of a client: grants of its claims, hints, events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clinch_core::store::{Wake, WakeRegistry};
use clinch_kit::closed::Closed;
use redis::{PushInfo, PushKind, Value};

use crate::connection::PushHandler;
use crate::events::EventRouter;
use crate::guest::GuestWaiters;
use crate::keys::Keys;
use crate::record;

/// All pushed messages of one client, from all its connections.
#[derive(Debug)]
pub(crate) struct PushRouter {
    /// The channel with the grants of this client; empty if it has none.
    channel: String,
    /// The claims that wait.
    pub(crate) wakes: WakeRegistry,
    /// The streams of events.
    pub(crate) events: EventRouter,
    /// The greatest number seen. It goes with every claim: a server that has lost its data and whose
    /// clock is behind must not grant a smaller one.
    greatest: AtomicU64,
    /// Guests that wait for releases by other libraries.
    pub(crate) guests: GuestWaiters,
    pub(crate) closed: Closed,
}

impl PushRouter {
    /// With a channel for the grants of this client, or none; `keys` if there are events.
    pub(crate) fn new(channel: String, keys: Option<Keys>) -> Arc<Self> {
        Self::with(channel, EventRouter::new(keys))
    }

    /// On a cluster, where each name has its own channel for grants.
    pub(crate) fn of_cluster(keys: Keys) -> Arc<Self> {
        Self::with(String::new(), EventRouter::of_cluster(keys))
    }

    fn with(channel: String, events: EventRouter) -> Arc<Self> {
        Arc::new(Self {
            channel,
            wakes: WakeRegistry::default(),
            events,
            greatest: AtomicU64::default(),
            guests: GuestWaiters::default(),
            closed: Closed::default(),
        })
    }

    /// Records the number of a grant.
    pub(crate) fn saw(&self, seq: u64) {
        self.greatest.fetch_max(seq, Ordering::Relaxed);
    }

    /// The greatest number seen so far.
    pub(crate) fn greatest(&self) -> u64 {
        self.greatest.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.close();
        self.wakes.close();
        self.events.watchers.close();
        self.guests.close();
    }
}

impl PushHandler for PushRouter {
    fn channels(&self) -> Vec<String> {
        if self.is_closed() {
            return Vec::new();
        }
        let mut channels = vec![self.channel.clone()];
        if self.events.watchers.is_watched() {
            channels.push(self.events.channel().to_owned());
        }
        channels.extend(self.guests.channels());
        channels.retain(|channel| !channel.is_empty());
        channels
    }

    fn handle(&self, push: PushInfo) {
        let own = match push.kind {
            // A name's channel on a cluster.
            PushKind::SMessage => true,
            PushKind::Message => !self.channel.is_empty(),
            _ => return,
        };
        let mut data = push.data.into_iter();
        let (Some(Value::BulkString(channel)), Some(Value::BulkString(message))) =
            (data.next(), data.next())
        else {
            return;
        };
        if channel == self.events.channel().as_bytes() {
            self.events.publish(&message);
        } else if !own {
            self.guests.hint(&channel);
        } else if let Some((request, grant)) = record::message(&message) {
            if let Some(grant) = &grant {
                self.saw(grant.seq);
            }
            self.wakes
                .deliver(request, grant.map_or(Wake::Hint, Wake::Granted));
        }
    }

    fn missed(&self) {
        self.wakes.hint_all();
        self.guests.hint_all();
    }

    fn is_needed(&self) -> bool {
        let awaited =
            self.wakes.is_awaited() || self.events.watchers.is_watched() || self.guests.any();
        awaited && !self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.closed.is_closed()
    }
}
