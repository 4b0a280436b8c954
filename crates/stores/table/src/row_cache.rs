//! What this client remembers of the namespace and of names that it has just used.
//!
//! Every entry is a hint that saves a request or a subquery. A row's version is never used twice, so a
//! statement that demands the version which this client wrote or read applies to that very row, or to
//! none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::store::{Claim, Ending, Hold, Predecessor};
use clinch_core::{BootTime, Clock, Name, OwnerId, RequestId, keeper};
use clinch_kit::lock;

use crate::record::span;
use crate::{Dialect, Row, Watch};

/// How long it is used that a name was free or contended.
const FRESH: Duration = Duration::from_secs(10);
/// How long a whole row is used.
const ROW_FRESH: Duration = Duration::from_secs(1);
/// Names in the cache.
const MOST: usize = 4096;
/// How long "no client watches" is used. A new watcher waits as long before it reports to watch, so that
/// it misses no event.
pub(crate) const UNWATCHED_WINDOW: Duration = Duration::from_millis(500);
/// The server is queried for watchers after this number of statements in quick succession.
const OFTEN: u32 = 4;

/// A free name as this client has left it.
#[derive(Debug)]
pub(crate) struct Free {
    /// The version of its row.
    pub(crate) version: u64,
    /// The hold that was released.
    pub(crate) before: Predecessor,
}

/// What the last step of this client left.
#[derive(Debug)]
enum Left {
    /// Held by this client; no claim waited when it was granted.
    Held {
        request: RequestId,
        seq: u64,
        owner: OwnerId,
    },
    Free(BootTime, Free),
    /// Other claims waited when this client released it.
    Contended(BootTime),
}

#[derive(Debug, Default)]
struct Cached {
    left: Option<Left>,
    /// A row that is not plain, in which this client was granted: it can release without reading it
    /// again.
    granted: Option<(BootTime, Row)>,
}

/// Whether a client watches the namespace.
#[derive(Debug, Default)]
struct Watchers {
    /// When a statement last needed it, and how many in quick succession did.
    needed: Option<BootTime>,
    count: u32,
    queried: Option<BootTime>,
    /// Until when no client watches, by this machine's clock and by the server's, which may be set back.
    none_until: Option<(BootTime, u64)>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct RowCache {
    dialect: Arc<dyn Dialect>,
    names: Mutex<HashMap<Name, Cached>>,
    watchers: Mutex<Watchers>,
}

impl RowCache {
    pub(crate) fn new(dialect: Arc<dyn Dialect>) -> Arc<Self> {
        Arc::new(Self {
            dialect,
            names: Mutex::default(),
            watchers: Mutex::default(),
        })
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Name, Cached>> {
        lock(&self.names)
    }

    /// Changes the entry of a name; without anything in it, it is removed.
    fn change<T>(&self, name: &Name, change: impl FnOnce(&mut Cached) -> T) -> T {
        let mut names = self.names();
        let Some(cached) = names.get_mut(name) else {
            let mut cached = Cached::default();
            let changed = change(&mut cached);
            if cached.left.is_some() || cached.granted.is_some() {
                if names.len() >= MOST {
                    names.clear();
                }
                names.insert(name.clone(), cached);
            }
            return changed;
        };
        let changed = change(cached);
        if cached.left.is_none() && cached.granted.is_none() {
            names.remove(name);
        }
        changed
    }

    /// This claim was granted by a plain row.
    pub(crate) fn held(&self, claim: &Claim, seq: u64) {
        let held = Left::Held {
            request: claim.request,
            seq,
            owner: claim.owner.clone(),
        };
        self.change(&claim.name, |cached| cached.left = Some(held));
    }

    /// This hold was released, which gave the row this version.
    pub(crate) fn released(&self, hold: &Hold, version: u64) {
        let now = Clock::boot().now();
        self.change(&hold.name, |cached| {
            cached.left = match cached.left.take() {
                Some(Left::Held {
                    request,
                    seq,
                    owner,
                }) if request == hold.request && seq == hold.seq => {
                    let before = Predecessor::new(Ending::Released, seq, owner);
                    Some(Left::Free(now, Free { version, before }))
                }
                _ => None,
            };
        });
    }

    /// A release found other claims waiting, or none.
    pub(crate) fn contended(&self, name: &Name, contended: bool) {
        let left = contended.then(|| Left::Contended(Clock::boot().now()));
        self.change(name, |cached| cached.left = left);
    }

    /// Whether other claims waited recently, so that the fast path would be in vain.
    pub(crate) fn is_contended(&self, name: &Name) -> bool {
        let names = self.names();
        let left = names.get(name).and_then(|cached| cached.left.as_ref());
        matches!(left, Some(Left::Contended(since)) if is_within(*since, FRESH))
    }

    /// The free name as this client left it, for one attempt.
    pub(crate) fn take_free(&self, name: &Name) -> Option<Free> {
        self.change(name, |cached| match cached.left.take()? {
            Left::Free(since, free) => is_within(since, FRESH).then_some(free),
            other => {
                cached.left = Some(other);
                None
            }
        })
    }

    /// Keeps a row in which a claim of this client was granted.
    pub(crate) fn keep_granted(&self, name: &Name, row: Row) {
        let is_plain = row.content.state.is_none();
        let granted = (!is_plain).then(|| (Clock::boot().now(), row));
        self.change(name, |cached| cached.granted = granted);
    }

    /// That row, for one attempt.
    pub(crate) fn take_granted(&self, name: &Name) -> Option<Row> {
        let (since, row) = self.change(name, |cached| cached.granted.take())?;
        is_within(since, ROW_FRESH).then_some(Row {
            cached: true,
            ..row
        })
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        lock(&self.watchers)
    }

    /// The time of the server's clock before which no client watches, if known. If it is needed often,
    /// the server is queried in the background.
    pub(crate) fn unwatched_until(self: &Arc<Self>) -> Option<u64> {
        let now = Clock::boot().now();
        let within = |when: Option<BootTime>, span| when.is_some_and(|w| now.since(w) < span);
        let (until, query) = {
            let mut watchers = self.watchers();
            watchers.count = match within(watchers.needed.replace(now), UNWATCHED_WINDOW) {
                true => watchers.count.saturating_add(1),
                false => 0,
            };
            let queried = within(watchers.queried, UNWATCHED_WINDOW / 2);
            let query = watchers.count >= OFTEN && !queried;
            if query {
                watchers.queried = Some(now);
            }
            let until = watchers.none_until.filter(|(own, _)| now < *own);
            (until.map(|(_, servers)| servers), query)
        };
        if query {
            // Without a reply, each statement looks by itself.
            let _ = keeper::spawn(self.clone().query_watchers(now));
        }
        until
    }

    /// What a statement must do about watchers.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.unwatched_until()
            .map_or(Watch::Unknown, Watch::NoneBefore)
    }

    async fn query_watchers(self: Arc<Self>, sent: BootTime) {
        let reply = self.dialect.is_watched().await;
        self.watchers().none_until = match reply {
            Ok((false, now)) => {
                let until = now.saturating_add(span(UNWATCHED_WINDOW));
                Some((sent + UNWATCHED_WINDOW, until))
            }
            _ => None,
        };
    }
}

fn is_within(since: BootTime, span: Duration) -> bool {
    Clock::boot().now().since(since) < span
}
