//! What this client has asked for and not yet given up, and what has become of the rest.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::store::{Claim, Ending, Grant, LostReason};
use clinch_core::{BootTime, RequestId};
use tokio::sync::Notify;

use crate::notice::Seen;
use crate::record::{Record, Word};
use crate::session::Session;

/// Ended claims that are remembered, for their own repeated requests.
const REMEMBERED: usize = 4096;
/// Folders of which is remembered how they were found the last time.
const FOLDERS: usize = 4096;

/// A claim that has a node, or may have one.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) claim: Claim,
    /// The lock's folder.
    pub(crate) folder: String,
    /// The node's name without its number.
    pub(crate) prefix: String,
    state: Mutex<State>,
    /// Wakes what watches for it when it has ended.
    pub(crate) gone: Notify,
    pub(crate) has_ended: AtomicBool,
}

/// What is known of a claim.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) session: Arc<Session>,
    /// Whether a node was asked for.
    pub(crate) sent: bool,
    pub(crate) node: Option<Node>,
    pub(crate) granted: Option<Grant>,
    /// Claims ahead, as it was seen last.
    pub(crate) ahead: usize,
    /// Whether somebody watches for its turn.
    pub(crate) watched: bool,
    /// The child that is watched for it, if it is one.
    pub(crate) target: Option<String>,
    /// Whether somebody watches over its own node.
    pub(crate) guarded: bool,
    /// Whether a release was sent.
    pub(crate) leaving: bool,
    /// Whether the folder says that it holds since it came, and what it said before.
    pub(crate) recorded: Option<Box<Left>>,
    pub(crate) lease: Duration,
    /// When it ends unless it is repeated or renewed.
    pub(crate) until: BootTime,
    pub(crate) record: Record,
    /// The word that it found.
    pub(crate) before: Option<Word>,
    /// The claim that it watches.
    pub(crate) seen: Option<Seen>,
}

/// The node of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) number: i64,
    /// The token.
    pub(crate) seq: u64,
}

impl Entry {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request(&self) -> RequestId {
        self.claim.request
    }

    /// The path of its node.
    pub(crate) fn path(&self, node: &Node) -> String {
        format!("{}/{}", self.folder, node.name)
    }

    /// Whether it holds alone.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.claim.units == self.claim.limit
    }

    /// The last word about it; before it has a node, the word is written together with it.
    pub(crate) fn word(&self, node: Option<&Node>, ending: crate::record::How) -> Word {
        let state = self.state();
        Word {
            request: self.request().to_string(),
            number: node.map_or(-1, |node| node.number),
            seq: node.map_or(0, |node| node.seq),
            owner: self.claim.owner.as_str().to_owned(),
            ending,
            delayed: false,
            record: Some(state.record.clone()),
            before: state.before.as_ref().map(Word::past),
        }
    }
}

impl State {
    /// Until when it is kept: a hold that was not renewed keeps its place for its lock-delay.
    pub(crate) fn kept_until(&self, claim: &Claim) -> BootTime {
        match self.granted {
            Some(_) => self.until + claim.lock_delay,
            None => self.until,
        }
    }
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) seq: Option<u64>,
    pub(crate) ending: Ending,
    pub(crate) reason: LostReason,
}

/// How a folder was found the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Nobody else was there when we left it like this.
    Quiet(Box<Left>),
    /// Somebody was.
    Busy,
}

/// A folder as we left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    /// Which folder it was: it may have gone and come again.
    pub(crate) folder: i64,
    /// The version of its data.
    pub(crate) version: i32,
    /// Our word.
    pub(crate) word: Word,
    /// The word's zxid.
    pub(crate) written: i64,
}

/// All claims of one client.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    live: HashMap<RequestId, Arc<Entry>>,
    past: HashMap<RequestId, Past>,
    order: VecDeque<RequestId>,
    habits: HashMap<String, Habit>,
}

impl Pages {
    fn remember(&mut self, request: RequestId, past: Past) {
        if self.past.insert(request, past).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, request: RequestId) -> Option<Arc<Entry>> {
        self.lock().live.get(&request).cloned()
    }

    pub(crate) fn past(&self, request: RequestId) -> Option<Past> {
        self.lock().past.get(&request).copied()
    }

    /// A new entry, unless the claim has ended meanwhile.
    pub(crate) fn enter(
        &self,
        claim: &Claim,
        folder: String,
        session: Arc<Session>,
        now: BootTime,
    ) -> Result<Arc<Entry>, Past> {
        let mut pages = self.lock();
        if let Some(past) = pages.past.get(&claim.request) {
            return Err(*past);
        }
        if let Some(entry) = pages.live.get(&claim.request) {
            return Ok(entry.clone());
        }
        session.claims.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            prefix: crate::places::prefix(claim),
            folder,
            state: Mutex::new(State {
                session,
                sent: false,
                node: None,
                granted: None,
                ahead: 0,
                watched: false,
                target: None,
                guarded: false,
                leaving: false,
                recorded: None,
                lease: claim.lease,
                until: now + claim.lease,
                record: Record::of(claim),
                before: None,
                seen: None,
            }),
            claim: claim.clone(),
            gone: Notify::new(),
            has_ended: AtomicBool::new(false),
        });
        pages.live.insert(claim.request, entry.clone());
        Ok(entry)
    }

    /// A claim has ended: its node is gone, or goes with its session.
    pub(crate) fn end(&self, entry: &Entry, ending: Ending, reason: LostReason) {
        let (seq, session) = {
            let state = entry.state();
            let seq = state.granted.as_ref().map(|grant| grant.seq);
            (seq, state.session.clone())
        };
        let mut pages = self.lock();
        if pages.live.remove(&entry.request()).is_some() {
            session.claims.fetch_sub(1, Ordering::Relaxed);
        }
        let past = Past {
            seq,
            ending,
            reason,
        };
        pages.remember(entry.request(), past);
        drop(pages);
        entry.has_ended.store(true, Ordering::SeqCst);
        entry.gone.notify_waiters();
    }

    /// A claim of which nothing is left at the servers: it may be made again.
    pub(crate) fn forget(&self, entry: &Entry) {
        let session = entry.state().session.clone();
        if self.lock().live.remove(&entry.request()).is_some() {
            session.claims.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A claim has moved to another session.
    pub(crate) fn moved(&self, entry: &Entry, old: &Session, new: Arc<Session>) {
        let live = self.lock().live.contains_key(&entry.request());
        if live {
            old.claims.fetch_sub(1, Ordering::Relaxed);
            new.claims.fetch_add(1, Ordering::Relaxed);
        }
        entry.state().session = new;
    }

    /// A claim that was never sent must not be sent any more.
    pub(crate) fn forbid(&self, request: RequestId) {
        let past = Past {
            seq: None,
            ending: Ending::Released,
            reason: LostReason::Released,
        };
        let mut pages = self.lock();
        if !pages.past.contains_key(&request) {
            pages.remember(request, past);
        }
    }

    /// The claims that hold something in this session.
    pub(crate) fn held_in(&self, session: i64) -> Vec<RequestId> {
        let mut entries = self.all();
        entries.retain(|entry| {
            let state = entry.state();
            state.session.id == session && state.granted.is_some() && !state.leaving
        });
        entries.iter().map(|entry| entry.request()).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().live.values().cloned().collect()
    }

    pub(crate) fn habit(&self, folder: &str) -> Option<Habit> {
        self.lock().habits.get(folder).cloned()
    }

    pub(crate) fn learn(&self, folder: &str, habit: Habit) {
        let mut pages = self.lock();
        if let Some(known) = pages.habits.get_mut(folder) {
            *known = habit;
            return;
        }
        if pages.habits.len() >= FOLDERS {
            pages.habits.clear();
        }
        pages.habits.insert(folder.to_owned(), habit);
    }

    /// A folder is not as we thought.
    pub(crate) fn unlearn(&self, folder: &str) {
        self.lock().habits.remove(folder);
    }
}
