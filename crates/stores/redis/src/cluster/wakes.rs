//! Wakes on a cluster: a channel for each name that this client waits for, in the slot of the name.
//!
//! The subscription follows a slot that moves, and the successor of a dead master. After each new
//! subscription all waiters of the name get a hint, so that no wake is lost in between. It is kept for a
//! while after the last waiter has gone, because a contended name is usually waited for again soon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch_core::store::{Wake, WakeRegistry};
use clinch_core::{ClientId, Clock, RequestId, Result, keeper};
use clinch_kit::backoff::Backoff;
use tokio::sync::Notify;

use super::Cluster;
use super::route::{REDIRECTIONS, redirect_loop};
use super::slots::slot_of;
use crate::config::Address;
use crate::connection::PushHandler;

/// A channel that was unused for between one and two of these is closed.
const LINGER: Duration = Duration::from_secs(20);
/// The same if more than `MANY` are open.
const LINGER_AMONG_MANY: Duration = Duration::from_millis(500);
const MANY: usize = 1000;
/// With this many waiters of one name, those that have gone are removed.
const TOO_MANY_WAITING: usize = 32;
/// The pauses between two attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// The channels of one client.
#[derive(Debug)]
pub(crate) struct ClusterWakes {
    me: ClientId,
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    open: HashMap<String, Channel>,
    /// Counts subscriptions.
    made: u64,
    closed: bool,
}

#[derive(Debug)]
struct Channel {
    /// The claims that wait; some may have gone.
    waiting: Vec<RequestId>,
    /// Whether a claim was added since the last check.
    used: bool,
    /// The server that it is subscribed at, and the number of this subscription.
    at: Option<(Address, u64)>,
    /// The server that it is being subscribed at. Its end may be reported before its success.
    coming: Option<Address>,
    /// Where the name was found, if not at the master of its slot: the slot is moving.
    seen: Option<Address>,
    /// It must be subscribed again, or is not needed any more.
    changed: Arc<Notify>,
}

impl ClusterWakes {
    pub(crate) fn new(me: ClientId) -> Self {
        Self {
            me,
            channels: Mutex::default(),
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel of this client for a name; the script computes the same.
    fn channel(&self, key: &str) -> String {
        format!("{key}:{}", self.me)
    }

    /// The number of the current subscription for the name with this key.
    pub(crate) fn subscription(&self, key: &str) -> Option<u64> {
        let channels = self.channels();
        let channel = channels.open.get(&self.channel(key))?;
        channel.at.as_ref().map(|(_, number)| *number)
    }

    /// A step of the name with this key was applied at this server.
    pub(crate) fn served(&self, key: &str, by: &Address) {
        let mut channels = self.channels();
        if channels.open.is_empty() {
            return;
        }
        let Some(channel) = channels.open.get_mut(&self.channel(key)) else {
            return;
        };
        if channel.at.as_ref().is_some_and(|(at, _)| at != by) && channel.seen.as_ref() != Some(by)
        {
            channel.seen = Some(by.clone());
            channel.changed.notify_one();
        }
    }

    /// A server has ended a subscription.
    pub(crate) fn ended(&self, channel: &str, by: &Address) {
        let mut channels = self.channels();
        if let Some(channel) = channels.open.get_mut(channel) {
            channel.forget(by);
        }
    }

    /// The connection to a server has ended.
    pub(crate) fn lost(&self, at: &Address) {
        let mut channels = self.channels();
        for channel in channels.open.values_mut() {
            channel.forget(at);
        }
    }

    pub(crate) fn close(&self) {
        let mut channels = self.channels();
        channels.closed = true;
        for channel in channels.open.values() {
            channel.changed.notify_one();
        }
    }

    /// Adds a claim that waits; `Some` if its channel must be opened.
    fn add(
        &self,
        channel: &str,
        request: RequestId,
        registry: &WakeRegistry,
    ) -> Option<Arc<Notify>> {
        let mut channels = self.channels();
        if let Some(channel) = channels.open.get_mut(channel) {
            channel.used = true;
            if channel.waiting.len() >= TOO_MANY_WAITING {
                channel.waiting.retain(|request| registry.awaits(*request));
            }
            if !channel.waiting.contains(&request) {
                channel.waiting.push(request);
            }
            return None;
        }
        let changed = Arc::new(Notify::new());
        let made = Channel {
            waiting: vec![request],
            used: true,
            at: None,
            coming: None,
            seen: None,
            changed: changed.clone(),
        };
        channels.open.insert(channel.to_owned(), made);
        Some(changed)
    }

    /// Where a channel is subscribed, and where its name was found; `None` once it is closed.
    fn place(&self, channel: &str) -> Option<(Option<Address>, Option<Address>)> {
        let channels = self.channels();
        let open = channels.open.get(channel).filter(|_| !channels.closed)?;
        let at = open.at.as_ref().map(|(at, _)| at.clone());
        Some((at, open.seen.clone()))
    }

    /// It is being subscribed at this server.
    fn opening(&self, channel: &str, at: &Address) {
        if let Some(channel) = self.channels().open.get_mut(channel) {
            channel.coming = Some(at.clone());
        }
    }

    /// It is subscribed: sends a hint to all waiters.
    fn opened(&self, channel: &str, registry: &WakeRegistry) {
        let mut channels = self.channels();
        channels.made += 1;
        let number = channels.made;
        let Some(channel) = channels.open.get_mut(channel) else {
            return;
        };
        channel.at = channel.coming.take().map(|at| (at, number));
        channel.waiting.retain(|request| registry.awaits(*request));
        for request in &channel.waiting {
            registry.deliver(*request, Wake::Hint);
        }
    }

    /// The name was not where it was found before: its slot is looked up again.
    fn unsee(&self, channel: &str) {
        if let Some(channel) = self.channels().open.get_mut(channel) {
            channel.seen = None;
        }
    }

    /// Whether a channel is still needed; removes it if not.
    fn keep(&self, channel: &str, registry: &WakeRegistry) -> bool {
        let mut channels = self.channels();
        let closed = channels.closed;
        let Some(open) = channels.open.get_mut(channel) else {
            return false;
        };
        open.waiting.retain(|request| registry.awaits(*request));
        let needed = std::mem::take(&mut open.used) || !open.waiting.is_empty();
        if closed || !needed {
            channels.open.remove(channel);
        }
        needed && !closed
    }

    fn linger(&self) -> Duration {
        match self.channels().open.len() > MANY {
            true => LINGER_AMONG_MANY,
            false => LINGER,
        }
    }
}

impl Channel {
    /// It is not subscribed there any more.
    fn forget(&mut self, there: &Address) {
        let was = self.at.take_if(|(at, _)| at == there).is_some();
        let would_be = self.coming.take_if(|at| at == there).is_some();
        if was || would_be {
            self.seen.take_if(|at| at == there);
            self.changed.notify_one();
        }
    }
}

impl Cluster {
    /// Subscribes to wakes of a claim that waits for the name with this key.
    pub(crate) fn listen(self: &Arc<Self>, key: &str, request: RequestId) {
        let channel = self.wakes.channel(key);
        if let Some(changed) = self.wakes.add(&channel, request, &self.pushes.wakes) {
            let maintaining = maintain(
                Arc::downgrade(self),
                channel,
                slot_of(key.as_bytes()),
                changed,
            );
            if let Err(error) = keeper::spawn(maintaining) {
                tracing::warn!(%error, "cannot subscribe to wakes: waiting by polling");
            }
        }
    }

    /// Subscribes to a channel at the server that has its name.
    async fn subscribe(&self, channel: &str, slot: u16) -> Result<()> {
        let Some((was, seen)) = self.wakes.place(channel) else {
            return Ok(());
        };
        let (mut to, mut asking) = match seen {
            Some(seen) => (seen, true),
            None => (self.find(slot).await?, false),
        };
        for _ in 0..REDIRECTIONS {
            self.wakes.opening(channel, &to);
            let trouble = match self.node(&to).listener.subscribe(channel, asking).await {
                Ok(()) => {
                    self.wakes.opened(channel, &self.pushes.wakes);
                    if let Some(was) = was.filter(|was| *was != to) {
                        self.node(&was).listener.unsubscribe(channel).await;
                    }
                    return Ok(());
                }
                Err(trouble) => trouble,
            };
            self.wakes.unsee(channel);
            match self.redirected(&trouble, &to) {
                Some(next) => (to, asking) = next,
                None => {
                    // Its other channels are on the same connection.
                    self.wakes.lost(&to);
                    return Err(self.troubled(trouble, &to));
                }
            }
        }
        Err(redirect_loop(channel, &to))
    }

    /// Ends the subscription to a channel that was removed.
    async fn unsubscribe(&self, channel: &str, at: Option<Address>) {
        if let Some(at) = at {
            self.node(&at).listener.unsubscribe(channel).await;
        }
    }
}

/// Keeps a channel subscribed until it is not needed any more.
async fn maintain(cluster: Weak<Cluster>, channel: String, slot: u16, changed: Arc<Notify>) {
    let mut pauses = PAUSES;
    loop {
        let Some(this) = cluster.upgrade() else {
            return;
        };
        let linger = match this.subscribe(&channel, slot).await {
            Ok(()) => {
                pauses.reset();
                this.wakes.linger()
            }
            Err(error) => {
                tracing::debug!(%error, %channel, "cannot subscribe yet");
                pauses.next_span()
            }
        };
        drop(this);
        let mut subscribed = true;
        while subscribed {
            let ended = tokio::select! {
                () = changed.notified() => true,
                () = Clock::boot().sleep(linger) => false,
            };
            let Some(this) = cluster.upgrade() else {
                return;
            };
            let at = this.wakes.place(&channel).and_then(|(at, _)| at);
            subscribed = !ended && at.is_some();
            // A channel that has only moved is still needed.
            if (!ended || this.pushes.is_closed()) && !this.wakes.keep(&channel, &this.pushes.wakes)
            {
                return this.unsubscribe(&channel, at).await;
            }
        }
    }
}
