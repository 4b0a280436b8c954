//! Views of locks for operators: what `need` servers agree on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::{Entry, NameState, Phase};
use clinch_core::store::LockView;
use clinch_core::{BootTime, Clock, Name, RequestId, Result, keeper};
use tokio::sync::mpsc;

use super::nodes::{Nodes, too_few};
use crate::inspect;

/// The length of the stamp before a published value, which orders values by age.
const STAMP: usize = 16;
/// A common time base; the servers' clocks may differ.
const NOW: BootTime = BootTime::from_nanos(u64::MAX / 2);

/// How long the rest is awaited once enough servers have replied.
const GRACE: Duration = Duration::from_millis(100);

/// The locks to inspect.
#[derive(Debug, Clone)]
pub(crate) enum What {
    One(Name),
    Prefix(String),
}

/// A published value with its stamp.
pub(crate) fn stamped(number: u64, value: &str) -> Arc<str> {
    format!("{number:0STAMP$x}{value}").into()
}

/// The locks in use, in byte order of their names.
pub(crate) async fn views(nodes: Arc<Nodes>, what: What, clock: &Clock) -> Result<Vec<LockView>> {
    let (states, mut replies) = mpsc::unbounded_channel();
    for at in 0..nodes.all.len() {
        let (nodes, what, states) = (nodes.clone(), what.clone(), states.clone());
        keeper::spawn(async move {
            let seen = states_at(&nodes, at, what).await;
            // The receiver may have gone: enough others have replied.
            let _ = states.send(seen);
        })?;
    }
    drop(states);
    let mut merged = Merged::default();
    let (mut answered, mut pending, mut failed) = (0, nodes.all.len(), None);
    while answered + pending >= nodes.need {
        let certain = answered >= nodes.need && merged.is_certain(nodes.need, pending);
        let seen = match certain {
            false => replies.recv().await,
            // The holders are certain; the others may have a later end of their leases.
            true => tokio::select! {
                biased;
                seen = replies.recv() => seen,
                () = clock.sleep(GRACE) => None,
            },
        };
        let Some(seen) = seen else { break };
        pending -= 1;
        match seen {
            Ok(states) => {
                answered += 1;
                merged.add(states);
            }
            Err(error) => failed = Some(error),
        }
    }
    match answered >= nodes.need {
        true => Ok(merged.views(nodes.need)),
        false => Err(too_few(answered, &nodes, failed)),
    }
}

async fn states_at(nodes: &Nodes, at: usize, what: What) -> Result<Vec<(NameState, BootTime)>> {
    let Some(node) = nodes.all.get(at) else {
        return Ok(Vec::new());
    };
    let names = match what {
        What::One(name) => vec![name],
        What::Prefix(prefix) => inspect::names(&node.servers, &nodes.keys, &prefix).await?,
    };
    let mut states = Vec::with_capacity(names.len());
    for name in names {
        states.push(inspect::state(&node.servers, &nodes.keys, &name).await?);
    }
    Ok(states)
}

/// One claim, as several servers show it.
#[derive(Debug)]
struct Seen {
    entry: Entry,
    /// The number of servers that have it.
    count: usize,
    /// The rest of its lease at each of them.
    left: Vec<Duration>,
}

/// The states of all servers, by name.
#[derive(Debug, Default)]
struct Merged(BTreeMap<Name, HashMap<(RequestId, Option<u64>), Seen>>);

impl Merged {
    fn add(&mut self, states: Vec<(NameState, BootTime)>) {
        for (state, now) in states {
            let name = self.0.entry(state.name.clone()).or_default();
            for entry in state.entries {
                let left = entry.until.since(now);
                let key = (entry.request, entry.seq());
                let since = NOW - now.since(entry.since);
                let seen = name.entry(key).or_insert_with(|| Seen {
                    entry: Entry {
                        since,
                        ..entry.clone()
                    },
                    count: 0,
                    left: Vec::new(),
                });
                seen.count += 1;
                seen.left.push(left);
                seen.entry.since = seen.entry.since.min(since);
                // The stamp comes first, so the newest is the greatest.
                seen.entry.value = seen.entry.value.take().max(entry.value);
            }
        }
    }

    /// Whether pending replies cannot change the holders.
    fn is_certain(&self, need: usize, pending: usize) -> bool {
        let certain = |seen: &Seen| seen.count >= need || seen.count + pending < need;
        pending < need && self.0.values().flat_map(HashMap::values).all(certain)
    }

    fn views(self, need: usize) -> Vec<LockView> {
        let view = |(name, entries): (Name, HashMap<_, Seen>)| {
            let mut state = NameState::new(name);
            let shown = entries.into_values().filter(|seen| seen.count >= need);
            state.entries = shown.map(|seen| seen.into_entry(need)).collect();
            state.entries.sort_by_key(Entry::seq);
            state.view(NOW)
        };
        self.0.into_iter().filter_map(view).collect()
    }
}

impl Seen {
    fn into_entry(mut self, need: usize) -> Entry {
        // It is held as long as `need` servers have it.
        self.left.sort_unstable_by(|a, b| b.cmp(a));
        let left = self.left.get(need - 1).copied().unwrap_or_default();
        self.entry.until = NOW + left;
        if let Phase::Held { .. } = self.entry.phase {
            let value = self.entry.value.take();
            self.entry.value = value.and_then(|value| value.get(STAMP..).map(Arc::from));
        }
        self.entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_stamp_is_greater() {
        assert!(stamped(10, "a") > stamped(9, "z"));
        assert_eq!(stamped(3, "äb").get(STAMP..), Some("äb"));
    }
}
