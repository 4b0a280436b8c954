//! The slots of a cluster: the slot of a key, and the master of a slot.

use std::collections::{HashMap, HashSet};

use clinch_kit::url::Host;
use redis::Value;

use crate::config::Address;

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of the part in braces, if there is one that is not empty.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(0, tag.unwrap_or(key)) % SLOTS
}

/// The checksum that Redis hashes with (XMODEM), continued from the checksum of the bytes before.
pub(crate) fn crc16(before: u16, bytes: &[u8]) -> u16 {
    let bit = |crc: u16| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    bytes.iter().fold(before, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| bit(crc))
    })
}

/// The master of each slot, as far as known.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// First and last slot of a range, and its master.
    ranges: Vec<(u16, u16, Address)>,
    /// Corrections of single slots since then.
    moved: HashMap<u16, Address>,
    /// Every server, masters first.
    servers: Vec<Address>,
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS`; `None` if it has no slots. A server that does not know its
    /// own address leaves it out: then it is the one that has replied.
    pub(crate) fn read(reply: Value, replied: &Address) -> Option<Self> {
        let Value::Array(rows) = reply else {
            return None;
        };
        let mut ranges = Vec::new();
        let mut replicas = Vec::new();
        for row in rows {
            let Value::Array(row) = row else { continue };
            let mut row = row.into_iter();
            let (Some(Value::Int(from)), Some(Value::Int(to))) = (row.next(), row.next()) else {
                continue;
            };
            let mut servers = row.filter_map(|server| address(server, replied));
            if let (Ok(from), Ok(to), Some(master)) =
                (u16::try_from(from), u16::try_from(to), servers.next())
            {
                ranges.push((from, to, master));
                replicas.extend(servers);
            }
        }
        let masters = ranges.iter().map(|(_, _, master)| master.clone());
        let mut seen = HashSet::new();
        let mut servers: Vec<_> = masters.chain(replicas).collect();
        servers.retain(|server| seen.insert(server.clone()));
        ranges.sort_by_key(|(from, ..)| *from);
        (!ranges.is_empty()).then(|| Self {
            ranges,
            moved: HashMap::new(),
            servers,
        })
    }

    /// The master of a slot.
    pub(crate) fn master(&self, slot: u16) -> Option<&Address> {
        if let Some(master) = self.moved.get(&slot) {
            return Some(master);
        }
        let after = self.ranges.partition_point(|(from, ..)| *from <= slot);
        let (_, to, master) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *to).then_some(master)
    }

    /// Corrects the master of a slot.
    pub(crate) fn set(&mut self, slot: u16, master: Address) {
        self.moved.insert(slot, master);
    }

    /// Every master, in a stable order.
    pub(crate) fn masters(&self) -> Vec<Address> {
        let mut masters = Vec::new();
        let ranges = self.ranges.iter().map(|(_, _, master)| master);
        for master in ranges.chain(self.moved.values()) {
            if !masters.contains(master) {
                masters.push(master.clone());
            }
        }
        masters
    }

    /// Every server in the map, masters first.
    pub(crate) fn servers(&self) -> &[Address] {
        &self.servers
    }
}

/// `[host, port, …]`, where the host may be empty or missing.
fn address(server: Value, replied: &Address) -> Option<Address> {
    let Value::Array(parts) = server else {
        return None;
    };
    let mut parts = parts.into_iter();
    let host = match parts.next()? {
        Value::BulkString(host) => String::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => String::new(),
        _ => return None,
    };
    let Value::Int(port) = parts.next()? else {
        return None;
    };
    named(&host, u16::try_from(port).ok()?, replied)
}

/// The server that a redirection names: `host:port`, where the host may be empty.
pub(crate) fn redirected(to: &str, by: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    named(host, port.parse().ok()?, by)
}

fn named(host: &str, port: u16, replied: &Address) -> Option<Address> {
    match (host, replied) {
        // A server without a name, in a cluster that uses names.
        ("?", _) => None,
        ("", Address::Tcp(host)) => Some(at(&host.name, port)),
        ("", Address::Unix(_)) => None,
        (host, _) => Some(at(host, port)),
    }
}

fn at(name: &str, port: u16) -> Address {
    Address::Tcp(Host {
        name: name.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString("id".into())])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn slots_are_those_of_redis() {
        let cluster = clinch_testkit::servers::Cluster::start().unwrap();
        let redis = cluster.node(0).unwrap();
        for key in [
            "123456789",
            "clinch:{app:a}",
            "clinch:{app:a}:q",
            "clinch:{app:a}}:q",
            "app:a",
            "{}foo",
            "foo{}{bar}",
            "foo{bar",
            "foo{{bar}}",
            "",
            "ä{ö}ü",
        ] {
            let slot = redis.cli(&["CLUSTER", "KEYSLOT", key]).unwrap();
            assert_eq!(slot_of(key.as_bytes()).to_string(), slot, "{key}");
        }
    }

    #[test]
    fn a_map_is_read_and_corrected() {
        let rows = Value::Array(vec![
            Value::Array(vec![
                Value::Int(100),
                Value::Int(200),
                server(text("10.0.0.2"), 7001),
                server(text("10.0.0.3"), 7002),
            ]),
            Value::Array(vec![
                Value::Int(0),
                Value::Int(98),
                server(text(""), 7000),
                server(Value::Nil, 7003),
            ]),
        ]);
        let mut map = SlotMap::read(rows, &at("h", 1)).unwrap();
        assert_eq!(map.master(0), Some(&at("h", 7000)));
        assert_eq!(map.master(98), Some(&at("h", 7000)));
        assert_eq!(map.master(99), None);
        assert_eq!(map.master(200), Some(&at("10.0.0.2", 7001)));
        assert_eq!(map.master(201), None);
        assert_eq!(map.servers().len(), 4);
        assert!(map.servers().contains(&at("h", 7003)));
        map.set(99, at("10.0.0.3", 7002));
        assert_eq!(map.master(99), Some(&at("10.0.0.3", 7002)));
        assert_eq!(map.masters().len(), 3);
        assert_eq!(SlotMap::read(Value::Array(vec![]), &at("h", 1)), None);
    }

    #[test]
    fn redirections_name_servers() {
        let by = at("h", 1);
        assert_eq!(redirected("10.0.0.1:7000", &by), Some(at("10.0.0.1", 7000)));
        assert_eq!(redirected(":7000", &by), Some(at("h", 7000)));
        assert_eq!(redirected("::1:7000", &by), Some(at("::1", 7000)));
        assert_eq!(redirected("?:7000", &by), None);
    }
}
