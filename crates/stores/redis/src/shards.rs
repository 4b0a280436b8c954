//! Wakes on a cluster: a channel for each name that this client waits for, in the slot of the name.
//!
//! The channel is where the name is. It follows a slot that moves, and a master that dies; whenever
//! it has been set up anew, whoever waits is told to look, so that no wake falls between. It is kept
//! for a while after the last waiter has gone: a contended name is waited for again soon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch_core::store::{Wake, WakeBook};
use clinch_core::{ClientId, Clock, RequestId, Result, keeper};
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::config::Address;
use crate::route::{REDIRECTIONS, astray};
use crate::session::Listen;
use crate::slots::slot_of;

/// A channel that nobody has used for between one and two of these is given up.
const LINGER: Duration = Duration::from_secs(20);
/// The same where there are many of them.
const LINGER_AMONG_MANY: Duration = Duration::from_millis(500);
const MANY: usize = 1000;
/// With so many waiters of one name it is looked at who of them has gone.
const TOO_MANY_WAITING: usize = 32;
/// The pauses between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The channels of one client.
#[derive(Debug)]
pub(crate) struct Shards {
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
    /// Who waits; some of them may have gone.
    waiting: Vec<RequestId>,
    /// Whether somebody has waited since it was last looked at.
    used: bool,
    /// Where it is, and the number of this subscription.
    at: Option<(Address, u64)>,
    /// Where it is being set up. Bad news from there may come before the task has heard the good.
    coming: Option<Address>,
    /// Where the name was seen, if that is not where its slot is: it is on its way.
    seen: Option<Address>,
    /// It has to be set up anew, or is not needed any more.
    changed: Arc<Notify>,
}

impl Shards {
    pub(crate) fn new(me: ClientId) -> Self {
        Self {
            me,
            channels: Mutex::default(),
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel on which this client is told of a name; the script has the same.
    fn channel(&self, key: &str) -> String {
        format!("{key}:{}", self.me)
    }

    /// The number of the present subscription for the name with this key.
    pub(crate) fn subscription(&self, key: &str) -> Option<u64> {
        let channels = self.channels();
        let channel = channels.open.get(&self.channel(key))?;
        channel.at.as_ref().map(|(_, number)| *number)
    }

    /// A step of the name with this key was done there.
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

    /// Notes a claim that waits; whether its channel is to be opened.
    fn add(&self, channel: &str, request: RequestId, book: &WakeBook) -> Option<Arc<Notify>> {
        let mut channels = self.channels();
        if let Some(channel) = channels.open.get_mut(channel) {
            channel.used = true;
            if channel.waiting.len() >= TOO_MANY_WAITING {
                channel.waiting.retain(|request| book.awaits(*request));
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

    /// Where a channel was, and where its name was seen; `None` when it has been closed.
    fn place(&self, channel: &str) -> Option<(Option<Address>, Option<Address>)> {
        let channels = self.channels();
        let open = channels.open.get(channel).filter(|_| !channels.closed)?;
        let at = open.at.as_ref().map(|(at, _)| at.clone());
        Some((at, open.seen.clone()))
    }

    /// It is about to be subscribed there.
    fn opening(&self, channel: &str, at: &Address) {
        if let Some(channel) = self.channels().open.get_mut(channel) {
            channel.coming = Some(at.clone());
        }
    }

    /// It has been subscribed there: whoever waits should look.
    fn opened(&self, channel: &str, book: &WakeBook) {
        let mut channels = self.channels();
        channels.made += 1;
        let number = channels.made;
        let Some(channel) = channels.open.get_mut(channel) else {
            return;
        };
        channel.at = channel.coming.take().map(|at| (at, number));
        channel.waiting.retain(|request| book.awaits(*request));
        for request in &channel.waiting {
            book.deliver(*request, Wake::Hint);
        }
    }

    /// The name was not where it was seen: its slot is asked for again.
    fn unsee(&self, channel: &str) {
        if let Some(channel) = self.channels().open.get_mut(channel) {
            channel.seen = None;
        }
    }

    /// Whether a channel is still needed; forgotten if it is not.
    fn keep(&self, channel: &str, book: &WakeBook) -> bool {
        let mut channels = self.channels();
        let closed = channels.closed;
        let Some(open) = channels.open.get_mut(channel) else {
            return false;
        };
        open.waiting.retain(|request| book.awaits(*request));
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
    /// It is not there any more.
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
    /// Has this client told of grants to a claim that waits for the name with this key.
    pub(crate) fn listen(self: &Arc<Self>, key: &str, request: RequestId) {
        let channel = self.shards.channel(key);
        if let Some(changed) = self.shards.add(&channel, request, &self.ears.book) {
            let tending = tend(
                Arc::downgrade(self),
                channel,
                slot_of(key.as_bytes()),
                changed,
            );
            if let Err(error) = keeper::spawn(tending) {
                tracing::warn!(%error, "cannot listen for wakes: waiting by polling");
            }
        }
    }

    /// Subscribes to a channel where its name is.
    async fn subscribe(&self, channel: &str, slot: u16) -> Result<()> {
        let Some((was, seen)) = self.shards.place(channel) else {
            return Ok(());
        };
        let (mut to, mut asking) = match seen {
            Some(seen) => (seen, true),
            None => (self.find(slot).await?, false),
        };
        for _ in 0..REDIRECTIONS {
            self.shards.opening(channel, &to);
            let trouble = match self.node(&to).listener.subscribe(channel, asking).await {
                Ok(()) => {
                    self.shards.opened(channel, &self.ears.book);
                    if let Some(was) = was.filter(|was| *was != to) {
                        self.node(&was).listener.unsubscribe(channel).await;
                    }
                    return Ok(());
                }
                Err(trouble) => trouble,
            };
            self.shards.unsee(channel);
            match self.redirected(&trouble, &to) {
                Some(next) => (to, asking) = next,
                None => {
                    // Its other channels are on the same connection.
                    self.shards.lost(&to);
                    return Err(self.troubled(trouble, &to));
                }
            }
        }
        Err(astray(channel, &to))
    }

    /// Ends the subscription to a channel that has been forgotten.
    async fn unsubscribe(&self, channel: &str, at: Option<Address>) {
        if let Some(at) = at {
            self.node(&at).listener.unsubscribe(channel).await;
        }
    }
}

/// Sets a channel up, again whenever it has to be, until nobody needs it.
async fn tend(cluster: Weak<Cluster>, channel: String, slot: u16, changed: Arc<Notify>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(this) = cluster.upgrade() else {
            return;
        };
        let linger = match this.subscribe(&channel, slot).await {
            Ok(()) => {
                pause = PAUSES.0;
                this.shards.linger()
            }
            Err(error) => {
                tracing::debug!(%error, %channel, "cannot listen yet");
                pause = (pause * 2).min(PAUSES.1);
                pause
            }
        };
        drop(this);
        let mut set_up = true;
        while set_up {
            let ended = tokio::select! {
                () = changed.notified() => true,
                () = Clock::boot().sleep(linger) => false,
            };
            let Some(this) = cluster.upgrade() else {
                return;
            };
            let at = this.shards.place(&channel).and_then(|(at, _)| at);
            set_up = !ended && at.is_some();
            // A channel that only has moved is needed as before.
            if (!ended || this.ears.is_closed()) && !this.shards.keep(&channel, &this.ears.book) {
                return this.unsubscribe(&channel, at).await;
            }
        }
    }
}
