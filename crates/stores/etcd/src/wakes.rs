//! Waiting: one watch stream, with a watch for each name that this client waits for.
//!
//! A watch keeps a mirror of its name, from the listing that queued the claim on. Events come in the
//! order of revisions and none is left out, so "everything before my claim is gone, and my claim is
//! there" is the grant itself, without another request. A watch stays for a while after it was needed:
//! etcd serves one that begins in the past only every tenth of a second, one that stands at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch_core::store::{EventKind, Grant, Wake, WakeBook};
use clinch_core::{BootTime, Name, RequestId, keeper};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;

use crate::keys::Keys;
use crate::mirror::{Mirror, Standing};
use crate::session::Session;
use crate::wire::{WatchCancel, WatchCreate, WatchKind, WatchRequest, WatchResponse};

/// How long a watch stays when nobody waits any more.
const IDLE: Duration = Duration::from_secs(30);
/// The most watches that stay so.
const MOST_IDLE: usize = 64;

/// A name that is waited for.
#[derive(Debug)]
struct Followed {
    watch: i64,
    mirror: Mirror,
    waiting: HashMap<RequestId, u64>,
    since: BootTime,
}

#[derive(Debug, Default)]
struct Following {
    names: HashMap<Name, Followed>,
    by_watch: HashMap<i64, Name>,
    watches: i64,
    /// To the stream, while there is one; with its number.
    stream: Option<(u64, UnboundedSender<WatchRequest>)>,
    streams: u64,
    closed: bool,
}

/// What became of a claim that was to be waited for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    Granted(Grant),
    Waiting,
    /// Its key is gone.
    Gone,
}

/// The ears of a client.
#[derive(Debug)]
pub(crate) struct Ears {
    session: Arc<Session>,
    keys: Keys,
    pub(crate) book: WakeBook,
    following: Mutex<Following>,
    /// Told of each grant.
    granted: Box<dyn Granted>,
    closed: tokio::sync::watch::Sender<bool>,
}

/// Somebody who wants to know of grants before the engine does.
pub(crate) trait Granted: std::fmt::Debug + Send + Sync {
    /// This claim holds now. `false` keeps it from the engine: it has to ask.
    fn granted(&self, request: RequestId, grant: &Grant) -> bool;
}

impl Ears {
    pub(crate) fn new(session: Arc<Session>, keys: Keys, granted: Box<dyn Granted>) -> Arc<Self> {
        Arc::new(Self {
            session,
            keys,
            book: WakeBook::default(),
            following: Mutex::default(),
            granted,
            closed: tokio::sync::watch::Sender::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Following> {
        self.following
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a name for a claim with this number, which waits in this listing.
    pub(crate) fn follow(
        self: &Arc<Self>,
        name: &Name,
        request: RequestId,
        seq: u64,
        listing: Mirror,
    ) -> Follow {
        let now = self.session.clock.now();
        let mut following = self.lock();
        if following.closed {
            return Follow::Waiting;
        }
        following.prune(now);
        if let Some(followed) = following.names.get_mut(name) {
            match followed.mirror.standing(seq) {
                Some(Standing::Holds) => {
                    let predecessor = followed.mirror.predecessor(seq);
                    return Follow::Granted(Grant { seq, predecessor });
                }
                None if followed.mirror.revision >= seq => return Follow::Gone,
                _ => {
                    followed.waiting.insert(request, seq);
                    return Follow::Waiting;
                }
            }
        }
        following.watches += 1;
        let (watch, span) = (following.watches, self.keys.all(name));
        let start = i64::try_from(listing.revision).unwrap_or(i64::MAX);
        let create = WatchCreate {
            key: span.0,
            range_end: span.1,
            start_revision: start.saturating_add(1),
            watch_id: watch,
        };
        let followed = Followed {
            watch,
            mirror: listing,
            waiting: HashMap::from([(request, seq)]),
            since: now,
        };
        following.names.insert(name.clone(), followed);
        following.by_watch.insert(watch, name.clone());
        self.session.count();
        self.send(&mut following, WatchKind::Create(create));
        Follow::Waiting
    }

    /// This claim waits no more.
    pub(crate) fn unfollow(&self, name: &Name, request: RequestId) {
        let now = self.session.clock.now();
        let mut following = self.lock();
        if let Some(followed) = following.names.get_mut(name)
            && followed.waiting.remove(&request).is_some()
        {
            followed.since = now;
            following.prune(now);
        }
    }

    fn send(self: &Arc<Self>, following: &mut Following, kind: WatchKind) {
        let message = WatchRequest { kind: Some(kind) };
        if let Some((_, stream)) = &following.stream {
            // A stream that has just ended forgets its watches itself.
            let _ = stream.send(message);
            return;
        }
        let (sender, receiver) = unbounded_channel();
        let _ = sender.send(message);
        following.streams += 1;
        let number = following.streams;
        following.stream = Some((number, sender));
        let listening = listen(Arc::downgrade(self), self.session.clone(), receiver, number);
        if let Err(error) = keeper::spawn(listening) {
            // Waiters still repeat their claims.
            tracing::warn!(%error, "cannot listen for grants: waiting by polling");
        }
    }

    fn hear(&self, number: u64, response: &WatchResponse) {
        let mut following = self.lock();
        if following
            .stream
            .as_ref()
            .is_none_or(|(current, _)| *current != number)
        {
            return;
        }
        let Some(name) = following.by_watch.get(&response.watch_id).cloned() else {
            return;
        };
        if response.canceled {
            // Compacted, most likely: whoever waits lists again, and a new watch begins there.
            following.by_watch.remove(&response.watch_id);
            let followed = following.names.remove(&name);
            drop(following);
            for request in followed.iter().flat_map(|followed| followed.waiting.keys()) {
                self.book.deliver(*request, Wake::Hint);
            }
            return;
        }
        let Some(followed) = following.names.get_mut(&name) else {
            return;
        };
        let mut woken = Vec::new();
        for change in followed.mirror.apply(&self.keys, &name, &response.events) {
            let Some(request) = change.party.request() else {
                continue;
            };
            if followed.waiting.get(&request) != Some(&change.seq) {
                continue;
            }
            match change.kind {
                EventKind::Granted => {
                    let grant = Grant {
                        seq: change.seq,
                        predecessor: followed.mirror.predecessor(change.seq),
                    };
                    woken.push((request, Some(grant)));
                }
                EventKind::Queued | EventKind::Published => continue,
                // Its key is gone: it has to ask what happened.
                _ => woken.push((request, None)),
            }
            followed.waiting.remove(&request);
        }
        drop(following);
        for (request, grant) in woken {
            let wake = match grant {
                Some(grant) if self.granted.granted(request, &grant) => Wake::Granted(grant),
                _ => Wake::Hint,
            };
            self.book.deliver(request, wake);
        }
    }

    /// The stream has ended: what was mirrored may be old, and whoever waits should look again.
    fn ended(&self, number: u64) {
        let mut following = self.lock();
        if following
            .stream
            .as_ref()
            .is_some_and(|(current, _)| *current == number)
        {
            following.stream = None;
            following.names.clear();
            following.by_watch.clear();
            drop(following);
            self.book.hint_all();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until the client is closed.
    pub(crate) async fn closed(&self) {
        // It cannot fail: the sender is our own.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        let old = std::mem::take(&mut *self.lock());
        self.lock().closed = true;
        drop(old);
        self.book.close();
    }
}

impl Following {
    /// Ends watches that nobody has needed for long, or that are too many.
    fn prune(&mut self, now: BootTime) {
        let idle = |followed: &&Followed| followed.waiting.is_empty();
        let many = self.names.values().filter(idle).count() > MOST_IDLE;
        let (names, stream) = (&mut self.names, &self.stream);
        let mut ended = Vec::new();
        names.retain(|_, followed| {
            let stays = !followed.waiting.is_empty() || !many && now.since(followed.since) < IDLE;
            if !stays {
                ended.push(followed.watch);
            }
            stays
        });
        for watch_id in ended {
            self.by_watch.remove(&watch_id);
            if let Some((_, stream)) = stream {
                let kind = Some(WatchKind::Cancel(WatchCancel { watch_id }));
                let _ = stream.send(WatchRequest { kind });
            }
        }
    }
}

/// Hears what a stream says, until it ends.
async fn listen(
    ears: Weak<Ears>,
    session: Arc<Session>,
    messages: UnboundedReceiver<WatchRequest>,
    number: u64,
) {
    let messages = UnboundedReceiverStream::new(messages);
    match session.stream("/etcdserverpb.Watch/Watch", messages).await {
        Ok((live, mut stream)) => loop {
            match stream.message().await {
                Ok(Some(response)) => {
                    let Some(ears) = ears.upgrade() else { return };
                    ears.hear(number, &response);
                }
                Ok(None) => break,
                Err(status) => {
                    tracing::debug!(%status, "a watch stream has ended");
                    session.give_up(&live);
                    break;
                }
            }
        },
        Err(trouble) => tracing::debug!(?trouble, "cannot watch"),
    }
    if let Some(ears) = ears.upgrade() {
        ears.ended(number);
    }
}
