//! A cluster: its servers, and which of them has which slots.
//!
//! Slots move and masters die while locks are held. The map of slots is corrected by redirections of
//! single slots (`route`), and refreshed in the background when a request fails.

mod listener;
mod pipeline;
mod route;
mod slot_keys;
mod slots;
mod wakes;

pub(crate) use slot_keys::SlotKeys;
pub(crate) use slots::{redirected, slot_of};

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch_core::store::Operations;
use clinch_core::{ClientId, Clock, Error, ErrorKind, Result, keeper};
use clinch_kit::backoff::Backoff;
use redis::Value;

use self::listener::{CommandPushes, Listener};
use self::slots::SlotMap;
use self::wakes::ClusterWakes;
use crate::config::{Address, Config};
use crate::connection::{PushHandler, Session};
use crate::wakes::PushRouter;

/// The pauses between two refreshes of the map.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// The servers of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<Config>,
    pushes: Arc<PushRouter>,
    /// The servers in the URL.
    seeds: Vec<Address>,
    nodes: Mutex<Nodes>,
    /// Held while the map is refreshed, so that concurrent refreshes send one request.
    refreshing: tokio::sync::Mutex<()>,
    /// Counts the refreshes.
    maps: AtomicU64,
    recovering: AtomicBool,
    operations: Operations,
    /// The subscriptions to wakes.
    pub(crate) wakes: ClusterWakes,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct Nodes {
    map: SlotMap,
    /// Every server used so far.
    known: HashMap<Address, Arc<Node>>,
    /// Those that have failed since the last refresh: the map is requested from them last.
    suspects: HashSet<Address>,
    /// Rotates the servers that the map is requested from: an outdated one is not used twice in a row.
    rotation: usize,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    /// The connection for steps and events.
    pub(crate) commands: Arc<Session>,
    /// The connection for wakes.
    pub(crate) listener: Listener,
}

impl Cluster {
    pub(crate) fn new(
        config: Arc<Config>,
        seeds: Vec<Address>,
        pushes: Arc<PushRouter>,
        me: ClientId,
        operations: Operations,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            config,
            pushes,
            seeds,
            nodes: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            maps: AtomicU64::default(),
            recovering: AtomicBool::default(),
            wakes: ClusterWakes::new(me),
            operations,
            this: this.clone(),
        })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server at this address.
    pub(crate) fn node(&self, at: &Address) -> Arc<Node> {
        let mut nodes = self.nodes();
        let known = nodes.known.entry(at.clone());
        let made = || {
            let pushes = CommandPushes::new(self.pushes.clone(), self.this.clone());
            let session = |pushes: Arc<dyn PushHandler>| {
                let (config, operations) = (self.config.clone(), self.operations.clone());
                Session::new(config, Box::new(at.clone()), pushes, operations)
            };
            Arc::new(Node {
                commands: session(Arc::new(pushes)),
                listener: Listener::new(at, &self.pushes, self.this.clone(), session),
            })
        };
        known.or_insert_with(made).clone()
    }

    /// The master of a slot, if known.
    pub(crate) fn master(&self, slot: u16) -> Option<Address> {
        self.nodes().map.master(slot).cloned()
    }

    /// The master of a slot; refreshes the map if it has none.
    pub(crate) async fn find(&self, slot: u16) -> Result<Address> {
        if let Some(master) = self.master(slot) {
            return Ok(master);
        }
        self.refresh().await?;
        self.master(slot).ok_or_else(|| {
            Error::new(
                ErrorKind::Unreachable,
                format!("no server of the cluster has slot {slot}"),
            )
            .with_advice("redis-cli --cluster check shows what is wrong with the cluster")
        })
    }

    /// The connections to every master.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let masters = self.nodes().map.masters();
        let session = |at: &Address| self.node(at).commands.clone();
        masters.iter().map(session).collect()
    }

    /// Finds the masters, and checks that they can keep locks.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.refresh().await?;
        for session in self.all() {
            match session.live().await {
                // Locks at the other masters can be used.
                Err(error) if error.kind() == ErrorKind::Unreachable => self.recover(),
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// The master of a key, if known.
    pub(crate) fn master_of(&self, key: &str) -> Option<Address> {
        self.master(slot_of(key.as_bytes()))
    }

    /// Corrects the map: a server has redirected us.
    pub(crate) fn note(&self, slot: u16, master: Address) {
        self.nodes().map.set(slot, master);
    }

    /// A server has failed: the map is requested from it last.
    pub(crate) fn suspect(&self, at: &Address) {
        self.nodes().suspects.insert(at.clone());
    }

    /// Refreshes the map in the background, until that succeeds and events are subscribed to.
    pub(crate) fn recover(&self) {
        if self.pushes.is_closed() || self.recovering.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.this.clone();
        let recovering = async move {
            let mut pauses = PAUSES;
            while let Some(cluster) = this.upgrade() {
                let recovered = cluster.refresh().await.is_ok() && cluster.watch_all().await;
                if recovered || cluster.pushes.is_closed() {
                    cluster.recovering.store(false, Ordering::Release);
                    return;
                }
                drop(cluster);
                Clock::boot().sleep(pauses.next_span()).await;
            }
        };
        if let Err(error) = keeper::spawn(recovering) {
            self.recovering.store(false, Ordering::Release);
            tracing::error!(%error, "cannot look for the masters of the cluster");
        }
    }

    /// Connects to every master if events are watched. Returns whether all could be reached: a master
    /// publishes its events to connected subscribers only.
    async fn watch_all(&self) -> bool {
        let mut reached = true;
        if self.pushes.events.watchers.is_watched() {
            for session in self.all() {
                reached &= session.live().await.is_ok();
            }
        }
        reached
    }

    /// Requests the map from one server after another.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let before = self.maps.load(Ordering::Acquire);
        let _refreshing = self.refreshing.lock().await;
        if self.maps.load(Ordering::Acquire) != before {
            // Another task has refreshed it meanwhile.
            return Ok(());
        }
        let mut failure: Option<Error> = None;
        for address in self.candidates() {
            match self.request_map(&address).await {
                Ok(map) => {
                    self.replace_map(map);
                    self.maps.fetch_add(1, Ordering::AcqRel);
                    return Ok(());
                }
                Err(error) => {
                    let vague = |old: &Error| old.kind() == ErrorKind::Unreachable;
                    if failure.as_ref().is_none_or(vague) {
                        failure = Some(error);
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::invalid("the URL names no server")))
    }

    /// The servers to request the map from, the most likely first.
    fn candidates(&self) -> Vec<Address> {
        let mut nodes = self.nodes();
        let mut servers = nodes.map.servers().to_vec();
        if !servers.is_empty() {
            nodes.rotation = (nodes.rotation + 1) % servers.len();
            servers.rotate_left(nodes.rotation);
        }
        servers.extend(self.seeds.iter().cloned());
        let mut seen = HashSet::new();
        servers.retain(|server| seen.insert(server.clone()));
        servers.sort_by_key(|server| nodes.suspects.contains(server));
        servers
    }

    async fn request_map(&self, address: &Address) -> Result<SlotMap> {
        let session = self.node(address).commands.clone();
        let live = session.live().await?;
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        let reply = session.query(&live, &cmd).await?;
        SlotMap::read(reply, address).ok_or_else(|| {
            Error::new(
                ErrorKind::Unreachable,
                format!("{address} has no map of slots"),
            )
        })
    }

    /// Takes a new map; connections to servers that are no masters any more are closed.
    fn replace_map(&self, map: SlotMap) {
        let masters: HashSet<_> = map.masters().into_iter().collect();
        let mut left = Vec::new();
        {
            let mut nodes = self.nodes();
            nodes.map = map;
            nodes.suspects.clear();
            for (address, node) in &nodes.known {
                if !masters.contains(address) {
                    left.push((address.clone(), node.clone()));
                }
            }
        }
        for (address, node) in left {
            node.commands.reset();
            node.listener.reset();
            self.wakes.lost(&address);
        }
    }

    /// The slots of each master by its own account, with marks at those that are moving.
    pub(crate) async fn layout(&self) -> Result<String> {
        self.refresh().await?;
        let mut layout = String::new();
        for session in self.all() {
            let live = session.live().await?;
            let mut cmd = redis::cmd("CLUSTER");
            cmd.arg("NODES");
            let text = match session.query(&live, &cmd).await? {
                Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Value::VerbatimString { text, .. } => text,
                _ => String::new(),
            };
            let own = text.lines().find(|line| line.contains("myself"));
            let slots = own.unwrap_or_default().split_whitespace().skip(8);
            layout += &format!("{} {:?}\n", live.server.address, slots.collect::<Vec<_>>());
        }
        Ok(layout)
    }

    /// Ends background tasks, and closes the connections.
    pub(crate) fn close(&self) {
        self.wakes.close();
        for node in self.nodes().known.values() {
            node.commands.reset();
            node.listener.reset();
        }
    }
}
