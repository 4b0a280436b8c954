//! A cluster: its servers, and which slots are whose.
//!
//! Slots move and masters die while locks are held. The map of slots is corrected by what servers
//! say of single ones (`route`), and asked for again in the background when anything goes wrong.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use clinch_core::{ClientId, Clock, Error, ErrorKind, Result, keeper};
use redis::Value;

use crate::config::{Address, Config};
use crate::listener::{CommandEars, Listener};
use crate::session::{Listen, Session};
use crate::shards::Shards;
use crate::slots::{SlotMap, slot_of};
use crate::wakes::Ears;

/// The pauses between two looks at a cluster that is not well.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The servers of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: Arc<Config>,
    pub(crate) ears: Arc<Ears>,
    /// The servers that the URL names.
    seeds: Vec<Address>,
    nodes: Mutex<Nodes>,
    /// Held while the map is asked for, so that it is asked for once.
    asking: tokio::sync::Mutex<()>,
    /// Counts the maps.
    maps: AtomicU64,
    mending: AtomicBool,
    /// Where grants are heard of.
    pub(crate) shards: Shards,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct Nodes {
    map: SlotMap,
    /// Every server that was ever needed.
    known: HashMap<Address, Arc<Node>>,
    /// Those that have failed since the map was asked for: they are asked last.
    suspects: HashSet<Address>,
    /// Whose turn it is to be asked: one that is behind the times is not asked twice in a row.
    turn: usize,
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
        ears: Arc<Ears>,
        me: ClientId,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            config,
            ears,
            seeds,
            nodes: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            maps: AtomicU64::default(),
            mending: AtomicBool::default(),
            shards: Shards::new(me),
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
            let ears = CommandEars::new(self.ears.clone(), self.this.clone());
            Arc::new(Node {
                commands: Session::new(self.config.clone(), Box::new(at.clone()), Arc::new(ears)),
                listener: Listener::new(&self.config, at, &self.ears, self.this.clone()),
            })
        };
        known.or_insert_with(made).clone()
    }

    /// The master of a slot, as far as is known.
    pub(crate) fn master(&self, slot: u16) -> Option<Address> {
        self.nodes().map.master(slot).cloned()
    }

    /// The master of a slot; the map is asked for if it has none.
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
            .with_advice("ask the cluster what it lacks: redis-cli --cluster check")
        })
    }

    /// The connections to every master.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let masters = self.nodes().map.masters();
        let session = |at: &Address| self.node(at).commands.clone();
        masters.iter().map(session).collect()
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        let nodes = self.nodes();
        let sent = |node: &Arc<Node>| node.commands.commands() + node.listener.commands();
        nodes.known.values().map(sent).sum()
    }

    /// Finds the masters, and checks that locks can live there.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.refresh().await?;
        for session in self.all() {
            match session.live().await {
                // Locks of the other masters can be used.
                Err(error) if error.kind() == ErrorKind::Unreachable => self.mend(),
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// The master of a key, as far as is known.
    pub(crate) fn master_of(&self, key: &str) -> Option<Address> {
        self.master(slot_of(key.as_bytes()))
    }

    /// A server has said where a slot is.
    pub(crate) fn note(&self, slot: u16, master: Address) {
        self.nodes().map.set(slot, master);
    }

    /// A server has failed: it is the last one to be asked for the map.
    pub(crate) fn suspect(&self, at: &Address) {
        self.nodes().suspects.insert(at.clone());
    }

    /// Asks for the map in the background, until it is there and watchers are served.
    pub(crate) fn mend(&self) {
        if self.ears.is_closed() || self.mending.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.this.clone();
        let mending = async move {
            let mut pause = PAUSES.0;
            while let Some(cluster) = this.upgrade() {
                let well = cluster.refresh().await.is_ok() && cluster.attend().await;
                if well || cluster.ears.is_closed() {
                    cluster.mending.store(false, Ordering::Release);
                    return;
                }
                drop(cluster);
                Clock::boot().sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        };
        if let Err(error) = keeper::spawn(mending) {
            self.mending.store(false, Ordering::Release);
            tracing::error!(%error, "cannot look for the masters of the cluster");
        }
    }

    /// Whether every master is listened to, if somebody watches: each tells its own subscribers.
    async fn attend(&self) -> bool {
        let mut well = true;
        if self.ears.watchers.any() {
            for session in self.all() {
                well &= session.live().await.is_ok();
            }
        }
        well
    }

    /// Asks one server after another for the map.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let before = self.maps.load(Ordering::Acquire);
        let _asking = self.asking.lock().await;
        if self.maps.load(Ordering::Acquire) != before {
            // Somebody else has asked meanwhile.
            return Ok(());
        }
        let mut failure: Option<Error> = None;
        for address in self.candidates() {
            match self.ask(&address).await {
                Ok(map) => {
                    self.adopt(map);
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

    /// Whom to ask for the map, the likeliest first.
    fn candidates(&self) -> Vec<Address> {
        let mut nodes = self.nodes();
        let mut servers = nodes.map.servers().to_vec();
        if !servers.is_empty() {
            nodes.turn = (nodes.turn + 1) % servers.len();
            servers.rotate_left(nodes.turn);
        }
        servers.extend(self.seeds.iter().cloned());
        let mut seen = HashSet::new();
        servers.retain(|server| seen.insert(server.clone()));
        servers.sort_by_key(|server| nodes.suspects.contains(server));
        servers
    }

    async fn ask(&self, address: &Address) -> Result<SlotMap> {
        let session = self.node(address).commands.clone();
        let live = session.live().await?;
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        let reply = session.query(&live, &cmd).await?;
        SlotMap::read(reply, address).ok_or_else(|| {
            Error::new(
                ErrorKind::Unreachable,
                format!("{address} knows of no slots"),
            )
        })
    }

    /// Takes a new map: servers that are no masters any more are left.
    fn adopt(&self, map: SlotMap) {
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
            self.shards.lost(&address);
        }
    }

    /// Which slots each master says are its own, and which of them are on their way.
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

    /// Ends what runs in the background, and the connections.
    pub(crate) fn close(&self) {
        self.shards.close();
        for node in self.nodes().known.values() {
            node.commands.reset();
            node.listener.reset();
        }
    }
}
