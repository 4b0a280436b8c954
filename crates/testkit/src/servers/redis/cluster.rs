//! A Redis Cluster.

use std::ops::RangeInclusive;

use clinch_core::{Error, Result};

use super::slots::{Node, SLOTS, SlotMigration, end_move, nodes, open_slots, slot_of};
use super::{Redis, RedisBuilder};
use crate::servers::server::group_error;
use crate::servers::{until, until_some};

/// Three masters and three replicas.
///
/// ```
/// use clinch_testkit::servers::Cluster;
/// let cluster = Cluster::start()?;
/// let master = cluster.node_of("a")?;
/// cluster.node(master)?.cli(&["SET", "a", "1"])?;
/// cluster.wait_synced()?;
/// cluster.kill(master)?;
/// cluster.wait_ok()?; // its replica took over
/// assert_eq!(cluster.node(cluster.node_of("a")?)?.cli(&["GET", "a"])?, "1");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
}

const MASTERS: usize = 3;

impl Cluster {
    /// Starts all six nodes, and waits until each sees a healthy cluster and every replica has its
    /// master's data. Nodes 0 to 2 are masters, node 3 + i is the replica of node i.
    pub fn start() -> Result<Self> {
        Self::start_with(|node| node)
    }

    /// The same with options for each node.
    ///
    /// ```
    /// use clinch_testkit::servers::Cluster;
    /// let cluster = Cluster::start_with(|node| node.append_only("always"))?;
    /// assert_eq!(cluster.node(0)?.cli(&["CONFIG", "GET", "appendonly"])?, "appendonly\nyes");
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_with(options: impl Fn(RedisBuilder) -> RedisBuilder) -> Result<Self> {
        let mut nodes = Vec::new();
        for _ in 0..2 * MASTERS {
            let node = Redis::with()
                .cluster()
                .config("cluster-node-timeout", "1200")
                .config("cluster-replica-validity-factor", "0")
                .config("cluster-allow-replica-migration", "no");
            nodes.push(options(node).start()?);
        }
        let ids: Result<_> = nodes.iter().map(|n| n.cli(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, ids: ids? };
        cluster.join()?;
        cluster.wait_ok()?;
        cluster.wait_synced()?;
        Ok(cluster)
    }

    fn join(&self) -> Result<()> {
        for (i, node) in self.nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
            if i < MASTERS {
                let range = share(i);
                let (from, to) = (range.start().to_string(), range.end().to_string());
                node.cli(&["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
            }
        }
        // Only now: a node that has met another refuses an epoch. All to all, which is faster than
        // waiting for gossip.
        for (i, node) in self.nodes.iter().enumerate() {
            for other in self.nodes.iter().skip(i + 1) {
                let bus = other.bus_port().unwrap_or_default().to_string();
                let port = other.port().to_string();
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        self.wait("every node sees the others", || {
            self.nodes.iter().all(|node| {
                let known = nodes(node);
                let known: Vec<_> = known.iter().filter(|n| n.is_well()).collect();
                known.len() == self.nodes.len()
                    && known.iter().filter(|n| !n.slots.is_empty()).count() == MASTERS
            })
        })?;
        for (replica, id) in self.nodes.iter().skip(MASTERS).zip(&self.ids) {
            replica.cli(&["CLUSTER", "REPLICATE", id])?;
        }
        self.wait("every node sees the replicas", || {
            self.nodes.iter().all(|node| {
                let known = nodes(node);
                known.iter().filter(|n| n.master.is_some()).count() == MASTERS
            })
        })
    }

    /// `redis+cluster://127.0.0.1:P1,127.0.0.1:P2,…` with all six nodes.
    pub fn url(&self) -> String {
        let hosts = self.nodes.iter();
        let hosts: Vec<_> = hosts.map(|n| format!("127.0.0.1:{}", n.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, index: usize) -> Result<&Redis> {
        let node = self.nodes.get(index);
        node.ok_or_else(|| Error::invalid("there are six nodes"))
    }

    /// The node's id in the cluster.
    pub fn id(&self, index: usize) -> Result<&str> {
        let id = self.ids.get(index).map(String::as_str);
        id.ok_or_else(|| Error::invalid("there are six nodes"))
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        slot_of(key.as_bytes())
    }

    /// The master of a key.
    pub fn node_of(&self, key: &str) -> Result<usize> {
        self.node_of_slot(self.slot_of(key))
    }

    /// The master of a slot, by the newest view among the running nodes. Waits for one that is
    /// healthy: on a busy machine nodes suspect each other for a moment.
    pub fn node_of_slot(&self, slot: u16) -> Result<usize> {
        let found = until_some(|| self.well_owner(slot));
        found.ok_or_else(|| self.failure(&format!("no node has slot {slot}")))
    }

    fn well_owner(&self, slot: u16) -> Option<usize> {
        let running = self.nodes.iter().filter(|n| n.is_running());
        let owner = running
            .flat_map(nodes)
            .filter(|n| n.is_well() && n.slots.iter().any(|range| range.contains(&slot)))
            .max_by_key(|n| n.epoch)?;
        self.ids.iter().position(|id| *id == owner.id)
    }

    /// Kills a node.
    pub fn kill(&self, index: usize) -> Result<()> {
        self.node(index)?.kill()
    }

    /// Starts a node again; it becomes a replica if another node has taken its slots.
    pub fn start_again(&self, index: usize) -> Result<()> {
        self.node(index)?.start_again()
    }

    /// Waits until all running nodes see a healthy cluster, with the same running master for every
    /// slot.
    pub fn wait_ok(&self) -> Result<()> {
        self.wait("the cluster is well", || {
            let running: Vec<_> = self.nodes.iter().filter(|n| n.is_running()).collect();
            let alive = |id: &str| {
                let mut pairs = self.nodes.iter().zip(&self.ids);
                pairs.any(|(node, other)| other == id && node.is_running())
            };
            let well = running.iter().all(|node| {
                let info = node.cli(&["CLUSTER", "INFO"]).unwrap_or_default();
                info.contains("cluster_state:ok")
            });
            let mut maps = running.iter().map(|node| owners(&nodes(node)));
            let Some(first) = maps.next().filter(|_| well) else {
                return false;
            };
            first.iter().all(|(_, id)| alive(id)) && maps.all(|map| map == first)
        })
    }

    /// Waits until every running replica has all data of its master.
    pub fn wait_synced(&self) -> Result<()> {
        let offset = |node: &Redis, name: &str| -> Option<i64> {
            node.info("replication").ok()?.get(name)?.parse().ok()
        };
        self.wait("every replica is in sync", || {
            let running = self.nodes.iter().filter(|n| n.is_running());
            running.into_iter().all(|node| {
                let Ok(info) = node.info("replication") else {
                    return false;
                };
                if info.get("role").is_some_and(|role| role == "master") {
                    return true;
                }
                let port = info.get("master_port").cloned().unwrap_or_default();
                let master = self.nodes.iter().find(|n| n.port().to_string() == port);
                let head = master.and_then(|master| offset(master, "master_repl_offset"));
                let at = offset(node, "slave_repl_offset");
                let up = info
                    .get("master_link_status")
                    .is_some_and(|link| link == "up");
                up && head.is_some() && at >= head
            })
        })
    }

    /// Begins to move a slot from one master to another; the caller takes the next steps.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) -> Result<SlotMigration<'_>> {
        SlotMigration::begin(self, slot, from, to)
    }

    /// The slots of a master, as the running nodes see it.
    pub fn slots_of(&self, index: usize) -> Result<Vec<(u16, u16)>> {
        let id = self.id(index)?;
        let running = self.nodes.iter().filter(|n| n.is_running());
        let known = running.flat_map(nodes).filter(|n| n.id == id);
        let newest = known.max_by_key(|n| n.epoch);
        let slots = newest.map(|n| n.slots).unwrap_or_default();
        let ends = slots
            .into_iter()
            .map(|range| (*range.start(), *range.end()));
        Ok(ends.collect())
    }

    /// Ends every unfinished move of a slot, and returns the slots: the owner gets back the keys that
    /// other nodes have. A move stays unfinished if one of the two masters fails over, because its
    /// replica has no record of it.
    ///
    /// ```
    /// use clinch_testkit::servers::Cluster;
    /// let cluster = Cluster::start()?;
    /// let (from, slot) = (cluster.node_of("a")?, cluster.slot_of("a"));
    /// cluster.node(from)?.cli(&["SET", "a", "1"])?;
    /// cluster.begin_migration(slot, from, (from + 1) % 3)?.move_some(1)?;
    /// assert_eq!(cluster.end_moves()?, [slot]);
    /// assert_eq!(cluster.node(from)?.cli(&["GET", "a"])?, "1");
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn end_moves(&self) -> Result<Vec<u16>> {
        let running = self.nodes.iter().filter(|n| n.is_running());
        let mut open: Vec<u16> = running.flat_map(open_slots).collect();
        open.sort_unstable();
        open.dedup();
        for slot in &open {
            let owner = self.node_of_slot(*slot)?;
            end_move(self, *slot, owner)?;
        }
        Ok(open)
    }

    /// Moves a slot with its keys from one master to another.
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let migration = self.begin_migration(slot, from, to)?;
        migration.move_keys()?;
        migration.finish()
    }

    pub(super) fn wait(&self, what: &str, condition: impl FnMut() -> bool) -> Result<()> {
        match until(condition) {
            true => Ok(()),
            false => Err(self.failure(&format!("timeout: {what}"))),
        }
    }

    fn failure(&self, what: &str) -> Error {
        group_error(&format!("cluster: {what}"), &self.nodes)
    }
}

/// The ranges of slots and their owners, in order.
fn owners(nodes: &[Node]) -> Vec<(RangeInclusive<u16>, String)> {
    let ranges = nodes.iter().flat_map(|node| {
        let ranges = node.slots.iter();
        ranges.map(|range| (range.clone(), node.id.clone()))
    });
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|(range, _)| *range.start());
    ranges
}

/// The slots of the i-th master at the start.
fn share(i: usize) -> RangeInclusive<u16> {
    let start = |i: usize| usize::from(SLOTS) * i / MASTERS;
    let slot = |n: usize| u16::try_from(n).unwrap_or(SLOTS - 1);
    slot(start(i))..=slot(start(i + 1) - 1)
}
