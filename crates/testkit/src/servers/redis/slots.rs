//! Slots of a cluster: which node owns them, and how they move.

use std::ops::RangeInclusive;

use clinch_core::Result;

use super::{Cluster, Redis};

/// The number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// One line of CLUSTER NODES.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: String,
    flags: String,
    pub(super) master: Option<String>,
    pub(super) epoch: u64,
    linked: bool,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Node {
    /// Whether the node that printed the line reaches it.
    pub(super) fn is_well(&self) -> bool {
        let bad = ["fail", "handshake", "noaddr"];
        self.linked && !bad.iter().any(|flag| self.flags.contains(flag))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut columns = line.split_whitespace();
        let (id, _address, flags) = (columns.next()?, columns.next()?, columns.next()?);
        let master = columns.next().filter(|id| *id != "-");
        let (epoch, link) = (columns.nth(2)?, columns.next()?);
        let slots = columns.filter_map(|range| {
            // A slot that is being moved is shown as [93->-id], which does not parse.
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.parse().ok()?..=to.parse().ok()?)
        });
        Some(Self {
            id: id.to_owned(),
            flags: flags.to_owned(),
            master: master.map(str::to_owned),
            epoch: epoch.parse().ok()?,
            linked: link == "connected",
            slots: slots.collect(),
        })
    }
}

/// The slots that a master is exporting or importing.
pub(super) fn open_slots(of: &Redis) -> Vec<u16> {
    let text = of.cli(&["CLUSTER", "NODES"]).unwrap_or_default();
    let own = text.lines().filter(|line| line.contains("myself,master"));
    let parts = own.flat_map(str::split_whitespace);
    let open = parts.filter_map(|part| part.strip_prefix('[')?.split('-').next()?.parse().ok());
    open.collect()
}

/// Ends the move of a slot: its owner keeps it, and gets all its keys back.
pub(super) fn end_move(cluster: &Cluster, slot: u16, owner: usize) -> Result<()> {
    let name = slot.to_string();
    let id = cluster.id(owner)?;
    // First: while it exports the slot, it refuses keys that it lacks.
    let stable = ["CLUSTER", "SETSLOT", name.as_str(), "STABLE"];
    cluster.node(owner)?.cli(&stable)?;
    for (index, node) in cluster.nodes().iter().enumerate() {
        let role = node.info("replication").ok();
        let role = role.and_then(|info| info.get("role").cloned());
        if index == owner || !node.is_running() || role.as_deref() != Some("master") {
            continue;
        }
        // Only a node that imports a slot may move its keys. A node that has just got the slot refuses
        // this; it has no keys to move then.
        let _ = node.cli(&["CLUSTER", "SETSLOT", &name, "IMPORTING", id]);
        move_back(node, &name, cluster.node(owner)?)?;
        node.cli(&stable)?;
    }
    Ok(())
}

/// Moves all keys of a slot; the owner's copy wins where both have one.
fn move_back(from: &Redis, slot: &str, to: &Redis) -> Result<()> {
    loop {
        let found = from.command(&["CLUSTER", "GETKEYSINSLOT", slot, "1"])?;
        let found = found.texts();
        let Some(key) = found.first() else {
            return Ok(());
        };
        let (host, port) = (to.address().to_string(), to.port().to_string());
        if let Err(why) = from.cli(&["MIGRATE", &host, &port, key, "0", "5000"]) {
            if !why.message().contains("BUSYKEY") {
                return Err(why);
            }
            from.importing(&["DEL", key])?;
        }
    }
}

/// All nodes, as one of them sees them; empty if it does not answer.
pub(super) fn nodes(of: &Redis) -> Vec<Node> {
    let text = of.cli(&["CLUSTER", "NODES"]).unwrap_or_default();
    text.lines().filter_map(Node::parse).collect()
}

/// The slot of a key: of the part in braces if there is one that is not empty.
///
/// ```
/// use clinch_testkit::servers::slot_of;
/// assert_eq!(slot_of(b"foo"), 12_182);
/// assert_eq!(slot_of(b"a{foo}b"), slot_of(b"foo"));
/// ```
pub fn slot_of(key: &[u8]) -> u16 {
    let mut parts = key.splitn(2, |b| *b == b'{').skip(1);
    let tag = parts.next().and_then(|rest| {
        let end = rest.iter().position(|b| *b == b'}')?;
        rest.get(..end).filter(|tag| !tag.is_empty())
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1021 })
        })
    });
    crc % SLOTS
}

/// A slot that is being moved from one master to another. Dropping it leaves the slot as it is.
///
/// ```
/// use clinch_testkit::servers::Cluster;
/// let cluster = Cluster::start()?;
/// let from = cluster.node_of("a")?;
/// let to = (from + 1) % 3;
/// cluster.node(from)?.cli(&["SET", "a", "1"])?;
/// let migration = cluster.begin_migration(cluster.slot_of("a"), from, to)?;
/// let redirected = cluster.node(from)?.cli(&["GET", "{a}b"]).unwrap_err();
/// assert!(redirected.message().contains("ASK"));
/// migration.move_keys()?;
/// migration.finish()?;
/// assert_eq!(cluster.node(to)?.cli(&["GET", "a"])?, "1");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SlotMigration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> SlotMigration<'a> {
    /// Marks the slot at both masters: from now on the old one redirects requests for keys that it
    /// does not have to the new one (ASK).
    pub(super) fn begin(
        cluster: &'a Cluster,
        slot: u16,
        from: usize,
        to: usize,
    ) -> Result<SlotMigration<'a>> {
        let slot = slot.to_string();
        let set = ["CLUSTER", "SETSLOT", &slot];
        let (source, target) = (cluster.id(from)?, cluster.id(to)?);
        let importing = [&set[..], &["IMPORTING", source]].concat();
        cluster.node(to)?.cli(&importing)?;
        let migrating = [&set[..], &["MIGRATING", target]].concat();
        cluster.node(from)?.cli(&migrating)?;
        Ok(Self {
            cluster,
            slot,
            from,
            to,
        })
    }

    /// Moves at most `keys` keys; returns the number of keys it found.
    pub fn move_some(&self, keys: usize) -> Result<usize> {
        let (from, to) = (self.cluster.node(self.from)?, self.cluster.node(self.to)?);
        let found = from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &keys.to_string()])?;
        let found = found.texts();
        if found.is_empty() {
            return Ok(0);
        }
        let port = to.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        command.extend(found.iter().map(String::as_str));
        from.cli(&command)?;
        Ok(found.len())
    }

    /// Moves all keys.
    pub fn move_keys(&self) -> Result<()> {
        while self.move_some(100)? > 0 {}
        Ok(())
    }

    /// Assigns the slot to the new master, and waits until all running nodes agree. Redis refuses it
    /// while the old master still has keys of the slot.
    pub fn finish(self) -> Result<()> {
        let target = self.cluster.id(self.to)?;
        // The new owner first: the slot must have one at any time.
        let rest = (0..self.cluster.nodes().len()).filter(|i| *i != self.to);
        for index in [self.to].into_iter().chain(rest) {
            let node = self.cluster.node(index)?;
            let is_master = |info: std::collections::BTreeMap<String, String>| {
                info.get("role").is_some_and(|role| role == "master")
            };
            if node.is_running() && node.info("replication").is_ok_and(is_master) {
                node.cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", target])?;
            }
        }
        self.cluster.wait_ok()
    }

    /// Cancels the move: the slot stays with the old master. No key may have been moved.
    pub fn cancel(self) -> Result<()> {
        for index in [self.from, self.to] {
            let node = self.cluster.node(index)?;
            node.cli(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot_of(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"x{foo}y"), 12_182);
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"));
        assert_eq!(slot_of(b"{foo"), slot_of(b"{foo"));
    }

    #[test]
    fn lines_of_nodes_are_understood() {
        let line = "07c3 127.0.0.1:1@2 myself,master - 0 0 5 connected 0-99 200 [93->-abc]";
        let node = Node::parse(line).unwrap();
        assert_eq!((node.id.as_str(), node.epoch), ("07c3", 5));
        assert_eq!(node.slots, [0..=99, 200..=200]);
        assert!(node.is_well() && node.master.is_none());
    }
}
