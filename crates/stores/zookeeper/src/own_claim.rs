//! A claim of this client, and what is known of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use clinch_core::store::{Claim, Grant};
use clinch_core::{BootTime, RequestId};
use clinch_kit::closed::Closed;
use clinch_kit::lock;

use crate::connection::Session;
use crate::folders::LeftFolder;
use crate::keys;
use crate::record::{FolderRecord, HoldState, Record};

/// A claim that has a node, or may have one.
#[derive(Debug)]
pub(crate) struct OwnClaim {
    pub(crate) claim: Claim,
    /// The lock's folder.
    pub(crate) folder: String,
    /// The node's name without its number.
    pub(crate) prefix: String,
    state: Mutex<State>,
    /// Set when the claim has ended; stops the tasks that watch for it.
    pub(crate) ended: Closed,
}

/// What is known of a claim.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) session: Arc<Session>,
    /// A request to create its node was sent.
    pub(crate) sent: bool,
    pub(crate) node: Option<Node>,
    pub(crate) granted: Option<Grant>,
    /// Claims ahead, as of the latest listing.
    pub(crate) ahead: usize,
    /// A task watches for its turn.
    pub(crate) waiting: bool,
    /// The node that this task watches, unless it watches the folder.
    pub(crate) watched_path: Option<String>,
    /// The claim of that node.
    pub(crate) watched_claim: Option<WatchedClaim>,
    /// A task watches its own node.
    pub(crate) node_watched: bool,
    /// A release was sent.
    pub(crate) releasing: bool,
    /// The folder as it was before the request that created the node marked it as held.
    pub(crate) replaced: Option<Box<LeftFolder>>,
    /// When it expires unless it is repeated or renewed.
    pub(crate) deadline: BootTime,
    pub(crate) record: Record,
    /// The folder record that it found.
    pub(crate) found: Option<FolderRecord>,
}

/// The node of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) number: i64,
    /// The zxid of its creation: the fencing token.
    pub(crate) seq: u64,
}

/// A claim of any client that was watched while it was ahead.
#[derive(Debug, Clone)]
pub(crate) struct WatchedClaim {
    pub(crate) request: Option<RequestId>,
    /// `None` for a claim of another library.
    pub(crate) record: Option<Record>,
    pub(crate) seq: u64,
    /// Its node was written before it was deleted: the claim did not simply expire.
    pub(crate) written: bool,
}

impl OwnClaim {
    pub(crate) fn new(claim: &Claim, folder: String, session: Arc<Session>, now: BootTime) -> Self {
        session.claims.fetch_add(1, Ordering::Relaxed);
        let state = State {
            session,
            sent: false,
            node: None,
            granted: None,
            ahead: 0,
            waiting: false,
            watched_path: None,
            watched_claim: None,
            node_watched: false,
            releasing: false,
            replaced: None,
            deadline: now + claim.lease,
            record: Record::of(claim),
            found: None,
        };
        Self {
            prefix: keys::prefix(claim),
            folder,
            state: Mutex::new(state),
            claim: claim.clone(),
            ended: Closed::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn request(&self) -> RequestId {
        self.claim.request
    }

    /// The path of its node.
    pub(crate) fn path(&self, node: &Node) -> String {
        format!("{}/{}", self.folder, node.name)
    }

    /// Its node, if it holds with this sequence number.
    pub(crate) fn held_node(&self, seq: u64) -> Option<Node> {
        let state = self.state();
        let held = state.granted.as_ref().is_some_and(|grant| grant.seq == seq);
        state.node.clone().filter(|_| held)
    }

    /// Whether its hold excludes all others.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.claim.units == self.claim.limit
    }

    /// The folder record for this claim. `node` is `None` for the transaction that creates the node.
    pub(crate) fn folder_record(&self, node: Option<&Node>, ending: HoldState) -> FolderRecord {
        let state = self.state();
        FolderRecord {
            request: self.request().to_string(),
            number: node.map_or(-1, |node| node.number),
            seq: node.map_or(0, |node| node.seq),
            owner: self.claim.owner.as_str().to_owned(),
            ending,
            delayed: false,
            record: Some(state.record.clone()),
            before: state.found.as_ref().map(FolderRecord::shortened),
        }
    }
}

impl Node {
    /// The node with this name, which is the claim's prefix and a number; `zxid` created it.
    pub(crate) fn new(name: String, prefix: &str, zxid: i64) -> Self {
        let number = name.strip_prefix(prefix).and_then(|n| n.parse().ok());
        Self {
            number: number.unwrap_or_default(),
            seq: u64::try_from(zxid).unwrap_or_default(),
            name,
        }
    }
}

impl State {
    /// When cleanup removes it: a hold that was not renewed keeps its place for its lock-delay.
    pub(crate) fn kept_until(&self, claim: &Claim) -> BootTime {
        match self.granted {
            Some(_) => self.deadline + claim.lock_delay,
            None => self.deadline,
        }
    }
}
