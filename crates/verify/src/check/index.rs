//! Holds, put together from the lines about them.

use std::collections::{BTreeMap, HashMap};

use super::{Property, Violation};
use crate::history::{Acquire, Call, Event, Fault, History, Kind, Look, Lost, Outcome, Release};

/// One grant, from its acquire to its end.
#[derive(Debug, Clone)]
pub(crate) struct Hold<'h> {
    pub(crate) acquire: &'h Acquire,
    pub(crate) token: u64,
    pub(crate) looks: Vec<&'h Look>,
    pub(crate) lost: Option<&'h Lost>,
    pub(crate) release: Option<&'h Release>,
}

impl Hold<'_> {
    /// The moments at which the guard is known to have said that it is valid.
    pub(crate) fn seen_valid(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.acquire.deadline.map(|_| self.acquire.complete);
        let looks = self.looks.iter().filter(|look| look.valid);
        let last = self.release.filter(|release| release.valid);
        first
            .into_iter()
            .chain(looks.map(|look| look.at))
            .chain(last.map(|release| release.invoke))
    }

    /// The time during which it claimed to be valid. Validity never comes back, so what was valid
    /// at a later look was valid all the time before.
    pub(crate) fn claim(&self) -> Option<(u64, u64)> {
        let last = self.seen_valid().max()?;
        Some((self.acquire.complete.min(last), last))
    }

    /// When it ended, as far as its process said.
    pub(crate) fn ended(&self) -> Option<u64> {
        let released = self.release.map(|release| release.complete);
        released
            .into_iter()
            .chain(self.lost.map(|lost| lost.at))
            .min()
    }

    /// `p3#17 (token 5)`.
    pub(crate) fn name(&self) -> String {
        format!("{} (token {})", op_name(self.acquire.op), self.token)
    }
}

/// `p3#17`: the 17th operation of process 3.
pub(crate) fn op_name(op: u64) -> String {
    format!("p{}#{}", op >> 32, op & u64::from(u32::MAX))
}

/// A history with its holds.
#[derive(Debug)]
pub(crate) struct Index<'h> {
    pub(crate) history: &'h History,
    /// The grants, without re-entries, in the order of their completion.
    pub(crate) holds: Vec<Hold<'h>>,
    by_op: HashMap<u64, usize>,
    /// The longest lease and lock-delay of each lock.
    leases: HashMap<&'h str, u64>,
    /// Checks ask for them again and again, and a history is long.
    pub(super) faults: Vec<&'h Fault>,
    /// When the machine let us wait, and how long.
    pub(super) lags: Vec<super::reach::Late>,
    pub(crate) origin: u64,
}

impl<'h> Index<'h> {
    pub(crate) fn new(history: &'h History) -> Self {
        let mut index = Self {
            history,
            holds: Vec::new(),
            by_op: HashMap::new(),
            leases: HashMap::new(),
            faults: history.faults().collect(),
            lags: super::reach::lags(&history.events),
            origin: history.start().map_or(0, |start| start.at),
        };
        for event in &history.events {
            if let Event::Acquire(acquire) = event {
                let longest = index.leases.entry(&acquire.lock).or_default();
                *longest = (*longest).max(acquire.lease + acquire.delay);
                index.open(acquire);
            }
        }
        for event in &history.events {
            match event {
                Event::Look(look) => index.with(look.op, |hold| hold.looks.push(look)),
                Event::Lost(lost) => index.with(lost.op, |hold| hold.lost = Some(lost)),
                Event::Release(release) => {
                    index.with(release.op, |hold| hold.release = Some(release));
                }
                _ => {}
            }
        }
        index
    }

    fn open(&mut self, acquire: &'h Acquire) {
        let (Outcome::Ok, Some(token)) = (acquire.outcome, acquire.token) else {
            return;
        };
        if acquire.kind == Kind::Again {
            return;
        }
        self.by_op.insert(acquire.op, self.holds.len());
        self.holds.push(Hold {
            acquire,
            token,
            looks: Vec::new(),
            lost: None,
            release: None,
        });
    }

    fn with(&mut self, op: u64, change: impl FnOnce(&mut Hold<'h>)) {
        if let Some(hold) = self.by_op.get(&op).and_then(|at| self.holds.get_mut(*at)) {
            change(hold);
        }
    }

    /// The holds of each lock, in the order of their completion.
    pub(crate) fn by_lock(&self) -> BTreeMap<&'h str, Vec<&Hold<'h>>> {
        let mut locks: BTreeMap<&str, Vec<&Hold<'_>>> = BTreeMap::new();
        for hold in &self.holds {
            locks.entry(&hold.acquire.lock).or_default().push(hold);
        }
        locks
    }

    /// The acquires, granted or not.
    pub(crate) fn acquires(&self) -> impl Iterator<Item = &'h Acquire> {
        self.history.events.iter().filter_map(|event| match event {
            Event::Acquire(acquire) => Some(acquire),
            _ => None,
        })
    }

    /// The calls to the store.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &'h Call> {
        self.history.events.iter().filter_map(|event| match event {
            Event::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The longest lease and lock-delay of any lock.
    pub(crate) fn longest_lease(&self) -> u64 {
        self.leases.values().copied().max().unwrap_or(0)
    }

    /// The longest lease and lock-delay of a lock.
    pub(crate) fn lease_of(&self, lock: &str) -> u64 {
        self.leases
            .get(lock)
            .copied()
            .unwrap_or_else(|| self.lease())
    }

    /// Whether the store sees a process end.
    pub(crate) fn at_once(&self) -> bool {
        let start = self.history.start();
        start.is_some_and(|start| start.at_once.is_some())
    }

    /// The lease of this run, which most locks have.
    pub(crate) fn lease(&self) -> u64 {
        self.history.start().map_or(0, |start| start.lease)
    }

    /// Whether the store gives tokens: without them there is no order to check.
    pub(crate) fn has_tokens(&self) -> bool {
        self.history.start().is_none_or(|start| start.tokens)
    }

    /// How much later than promised the machine may make things happen.
    pub(crate) fn grace(&self) -> u64 {
        self.history.start().map_or(0, |start| start.grace)
    }

    /// A moment in seconds since the start.
    pub(crate) fn time(&self, at: u64) -> String {
        let since = at.saturating_sub(self.origin);
        format!(
            "{}.{:06} s",
            since / 1_000_000_000,
            since % 1_000_000_000 / 1_000
        )
    }

    /// A violation about these operations.
    pub(crate) fn violation(
        &self,
        property: Property,
        lock: &str,
        (from, until): (u64, u64),
        ops: Vec<u64>,
        message: String,
    ) -> Violation {
        Violation {
            property,
            lock: lock.to_owned(),
            message,
            ops,
            from: from.min(until),
            until: from.max(until),
            excused_by: None,
        }
    }
}
