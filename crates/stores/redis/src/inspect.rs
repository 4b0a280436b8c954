//! Views of locks for operators.

use clinch_core::machine::{Entry, NameState, Phase};
use clinch_core::store::LockView;
use clinch_core::{BootTime, Name, Result};
use redis::Value;

use crate::connection::Servers;
use crate::error::unexpected;
use crate::keys::Keys;
use crate::record;
use crate::scripts::{Call, VIEW};

/// Keys in one step of a scan.
const STEP: u32 = 1000;
/// Scans of a cluster whose slots are moving: a key that moves during one is found by the next.
const PASSES: usize = 3;

/// One name in full.
pub(crate) async fn one(servers: &Servers, keys: &Keys, name: &Name) -> Result<Option<LockView>> {
    let (state, now) = state(servers, keys, name).await?;
    Ok(state.view(now))
}

/// The state of one name at its server, and the server's time.
pub(crate) async fn state(
    servers: &Servers,
    keys: &Keys,
    name: &Name,
) -> Result<(NameState, BootTime)> {
    let call = Call::new(&VIEW, vec![keys.state(name)], Vec::new());
    let reply = servers.call(call).await?;
    let Value::Array(views) = reply else {
        return Err(unexpected(servers.scheme()));
    };
    let view = views.into_iter().next();
    view.and_then(|view| decode(view, name))
        .ok_or_else(|| unexpected(servers.scheme()))
}

/// The names in use with this prefix, in byte order.
pub(crate) async fn list(servers: &Servers, keys: &Keys, prefix: &str) -> Result<Vec<LockView>> {
    let mut views = Vec::new();
    for name in names(servers, keys, prefix).await? {
        views.extend(one(servers, keys, &name).await?);
    }
    Ok(views)
}

/// The names with this prefix that have a state, in use or not, in byte order.
pub(crate) async fn names(servers: &Servers, keys: &Keys, prefix: &str) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for _ in 0..PASSES {
        let before = servers.layout().await?;
        scan(servers, keys, prefix, &mut names).await?;
        // A key that moves may be missed at both servers.
        if !before.contains('[') && servers.layout().await? == before {
            break;
        }
    }
    // A scan may return a key twice.
    names.sort();
    names.dedup();
    Ok(names)
}

/// Adds the names of all servers.
async fn scan(servers: &Servers, keys: &Keys, prefix: &str, names: &mut Vec<Name>) -> Result<()> {
    for session in servers.all() {
        let live = session.live().await?;
        let mut cursor = b"0".to_vec();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(keys.pattern(prefix))
                .arg("COUNT")
                .arg(STEP)
                .arg("TYPE")
                .arg("string");
            let reply = session.query(&live, &scan).await?;
            let Value::Array(parts) = reply else {
                return Err(unexpected(servers.scheme()));
            };
            let mut parts = parts.into_iter();
            let (Some(Value::BulkString(next)), Some(Value::Array(found))) =
                (parts.next(), parts.next())
            else {
                return Err(unexpected(servers.scheme()));
            };
            for key in found {
                if let Value::BulkString(key) = key {
                    names.extend(keys.name(&key));
                }
            }
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
    }
    Ok(())
}

/// The state of a name for the reference machine, and the server's time.
fn decode(view: Value, name: &Name) -> Option<(NameState, BootTime)> {
    let Value::Array(parts) = view else {
        return None;
    };
    let mut parts = parts.into_iter();
    let (Value::Int(now), Value::Int(limit)) = (parts.next()?, parts.next()?) else {
        return None;
    };
    let (Value::Array(held), Value::Array(waiting)) = (parts.next()?, parts.next()?) else {
        return None;
    };
    let limit = u32::try_from(limit).ok()?;
    let mut entries: Vec<Entry> = records(held, limit)?;
    // Holders are in no particular order.
    entries.sort_by_key(Entry::seq);
    entries.extend(records(waiting, limit)?);
    let now = record::time(u64::try_from(now).ok()?);
    for entry in &mut entries {
        // The server ends each lease a moment later, and its clock may have been set back.
        let longest = match entry.phase {
            Phase::Delayed { .. } => entry.lock_delay,
            Phase::Held { .. } | Phase::Waiting => entry.lease,
        };
        entry.until = entry.until.min(now + longest);
    }
    let mut state = NameState::new(name.clone());
    state.entries = entries;
    Some((state, now))
}

fn records(values: Vec<Value>, limit: u32) -> Option<Vec<Entry>> {
    let mut entries = Vec::with_capacity(values.len());
    for (ticket, value) in (0..).zip(values) {
        let Value::BulkString(record) = value else {
            return None;
        };
        // A prepared claim of a quorum is not held yet.
        if record.first() != Some(&b'P') {
            entries.push(record::entry(&record, ticket, limit)?);
        }
    }
    Some(entries)
}
