//! What an operator sees.

use clinch_core::machine::{Entry, NameState, Phase};
use clinch_core::store::LockView;
use clinch_core::{BootTime, Name, Result};
use redis::Value;

use crate::error::strange;
use crate::keys::Keys;
use crate::record;
use crate::scripts::{Call, VIEW};
use crate::servers::Servers;

/// Keys looked at in one step of a scan.
const STEP: u32 = 1000;
/// Scans of a cluster whose slots are on their way: what moves during one is found by the next.
const PASSES: usize = 3;

/// One name in full.
pub(crate) async fn one(servers: &Servers, keys: &Keys, name: &Name) -> Result<Option<LockView>> {
    let (state, now) = look(servers, keys, name).await?;
    Ok(state.view(now))
}

/// One name as its server has it, and the server's time.
pub(crate) async fn look(
    servers: &Servers,
    keys: &Keys,
    name: &Name,
) -> Result<(NameState, BootTime)> {
    let call = Call {
        script: &VIEW,
        keys: vec![keys.state(name)],
        args: Vec::new(),
        run_at: None,
        floor_at: None,
        wait: 0,
        limit: None,
    };
    let reply = servers.call(call).await?;
    let Value::Array(views) = reply else {
        return Err(strange(servers.scheme()));
    };
    let view = views.into_iter().next();
    view.and_then(|view| decode(view, name))
        .ok_or_else(|| strange(servers.scheme()))
}

/// The names in use with this prefix, in byte order.
pub(crate) async fn list(servers: &Servers, keys: &Keys, prefix: &str) -> Result<Vec<LockView>> {
    let mut views = Vec::new();
    for name in names(servers, keys, prefix).await? {
        views.extend(one(servers, keys, &name).await?);
    }
    Ok(views)
}

/// The names with this prefix that servers know, in use or not, in byte order.
pub(crate) async fn names(servers: &Servers, keys: &Keys, prefix: &str) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for _ in 0..PASSES {
        let before = servers.layout().await?;
        scan(servers, keys, prefix, &mut names).await?;
        // A key that moves may be missed: not there yet, and not here any more.
        if !before.contains('[') && servers.layout().await? == before {
            break;
        }
    }
    // A scan may give a key twice.
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
                return Err(strange(servers.scheme()));
            };
            let mut parts = parts.into_iter();
            let (Some(Value::BulkString(next)), Some(Value::Array(found))) =
                (parts.next(), parts.next())
            else {
                return Err(strange(servers.scheme()));
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

/// A name as the reference machine has it, and the server's time.
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
    // Holders come in no order of their own.
    entries.sort_by_key(Entry::seq);
    entries.extend(records(waiting, limit)?);
    let now = record::time(u64::try_from(now).ok()?);
    for entry in &mut entries {
        // The server lets each lease run a moment longer, and its clock may have been set back.
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
        // Half a claim on several servers is nobody's yet.
        if record.first() != Some(&b'P') {
            entries.push(record::entry(&record, ticket, limit)?);
        }
    }
    Some(entries)
}
