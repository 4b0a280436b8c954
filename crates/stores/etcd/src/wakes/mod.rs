//! Waiting: one watch stream per client, with one watch for each name that it waits for.
//!
//! A watch keeps a local copy of its name, starting with the listing that queued the claim. Events arrive
//! in the order of revisions and without gaps, so "all claims before mine are gone, and mine exists" is the
//! grant itself; no further request is needed. A watch stays open for a while after its last use: etcd
//! serves a watch that begins in the past only every 100 ms, an open one at once.

mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::{Grant, WakeRegistry};
use clinch_core::{BootTime, Name, RequestId};
use clinch_kit::closed::Closed;
use clinch_kit::lock;
use tokio::sync::mpsc::UnboundedSender;

use crate::connection::Session;
use crate::keys::Keys;
use crate::lock_state::{LockState, Standing};
use crate::predecessor::GrantRecorder;
use crate::wire::{WatchCancel, WatchCreate, WatchKind, WatchRequest};

/// How long a watch without waiters stays open.
const IDLE: Duration = Duration::from_secs(30);
/// How many watches without waiters stay open.
const MAX_IDLE: usize = 64;

/// A name with a watch.
#[derive(Debug)]
struct WatchedName {
    watch_id: i64,
    state: LockState,
    /// The sequence numbers of the waiting claims.
    waiting: HashMap<RequestId, u64>,
    last_use: BootTime,
}

#[derive(Debug, Default)]
struct Watching {
    names: HashMap<Name, WatchedName>,
    by_id: HashMap<i64, Name>,
    last_id: i64,
    /// The open stream: its number, and where its requests go.
    stream: Option<(u64, UnboundedSender<WatchRequest>)>,
    streams: u64,
}

/// The outcome of watching for a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Granted(Grant),
    Waits,
    /// Its key does not exist any more.
    Gone,
}

/// The watches of one client.
#[derive(Debug)]
pub(crate) struct Watches {
    session: Arc<Session>,
    keys: Keys,
    pub(crate) wakes: WakeRegistry,
    watching: Mutex<Watching>,
    recorder: GrantRecorder,
    pub(crate) closed: Closed,
}

impl Watches {
    pub(crate) fn new(session: Arc<Session>, keys: Keys, recorder: GrantRecorder) -> Arc<Self> {
        Arc::new(Self {
            session,
            keys,
            wakes: WakeRegistry::default(),
            watching: Mutex::default(),
            recorder,
            closed: Closed::default(),
        })
    }

    /// Watches a name for the claim with this sequence number, which waits in this listing.
    pub(crate) fn watch(
        self: &Arc<Self>,
        name: &Name,
        request: RequestId,
        seq: u64,
        listing: LockState,
    ) -> Watched {
        let now = self.session.clock.now();
        let mut watching = lock(&self.watching);
        // Under the lock: `close` sets the flag before it clears the names.
        if self.closed.is_closed() {
            return Watched::Waits;
        }
        watching.prune(now);
        if let Some(watched) = watching.names.get_mut(name) {
            match watched.state.standing(seq) {
                Some(Standing::Holds) => {
                    let predecessor = watched.state.predecessor(seq);
                    return Watched::Granted(Grant::new(seq, predecessor));
                }
                None if watched.state.revision >= seq => return Watched::Gone,
                _ => {
                    watched.waiting.insert(request, seq);
                    return Watched::Waits;
                }
            }
        }
        watching.last_id += 1;
        let (watch_id, range) = (watching.last_id, self.keys.all(name));
        let create = WatchCreate {
            key: range.0,
            range_end: range.1,
            start_revision: start_after(listing.revision),
            watch_id,
        };
        let watched = WatchedName {
            watch_id,
            state: listing,
            waiting: HashMap::from([(request, seq)]),
            last_use: now,
        };
        watching.names.insert(name.clone(), watched);
        watching.by_id.insert(watch_id, name.clone());
        self.session.count();
        self.send(&mut watching, WatchKind::Create(create));
        Watched::Waits
    }

    /// The claim does not wait any more.
    pub(crate) fn unwatch(&self, name: &Name, request: RequestId) {
        let now = self.session.clock.now();
        let mut watching = lock(&self.watching);
        if let Some(watched) = watching.names.get_mut(name)
            && watched.waiting.remove(&request).is_some()
        {
            watched.last_use = now;
            watching.prune(now);
        }
    }

    pub(crate) fn close(&self) {
        self.closed.close();
        let old = std::mem::take(&mut *lock(&self.watching));
        drop(old);
        self.wakes.close();
    }
}

impl Watching {
    fn is_current(&self, stream: u64) -> bool {
        let current = self.stream.as_ref();
        current.is_some_and(|(number, _)| *number == stream)
    }

    /// Cancels watches that have been without waiters for too long, or all such watches if they are too many.
    fn prune(&mut self, now: BootTime) {
        let idle = |watched: &&WatchedName| watched.waiting.is_empty();
        let too_many = self.names.values().filter(idle).count() > MAX_IDLE;
        let mut ended = Vec::new();
        self.names.retain(|_, watched| {
            let stays =
                !watched.waiting.is_empty() || !too_many && now.since(watched.last_use) < IDLE;
            if !stays {
                ended.push(watched.watch_id);
            }
            stays
        });
        for watch_id in ended {
            self.by_id.remove(&watch_id);
            if let Some((_, stream)) = &self.stream {
                let kind = Some(WatchKind::Cancel(WatchCancel { watch_id }));
                let _ = stream.send(WatchRequest { kind });
            }
        }
    }
}

/// The start revision of a watch that continues after this revision.
pub(crate) fn start_after(revision: u64) -> i64 {
    i64::try_from(revision)
        .unwrap_or(i64::MAX)
        .saturating_add(1)
}
