//! The steps of a sequence.

use clinch_core::Identity;
use clinch_core::store::Claim;
use proptest::prelude::*;

use super::Time;
use crate::clients::mutex;

/// A name that is a mutex or a semaphore, a semaphore, a read-write lock, and a mutex.
pub(super) const NAMES: [&str; 4] = ["a", "b/c", "rw", "d"];
pub(super) const CLIENTS: usize = 2;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Claim(New),
    // The numbers choose among the claims so far.
    Repeat(usize),
    Renew(usize, bool),
    Release(usize),
    /// With a number that is not its own.
    ReleaseOther(usize),
    Withdraw(usize),
    Evict(usize, bool),
    Check(usize),
    Look(usize),
    List,
    Pass(u64),
}

/// A claim to be made.
#[derive(Debug, Clone)]
pub(super) struct New {
    pub(super) client: usize,
    pub(super) name: usize,
    kind: u32,
    lease: u64,
    delay: u64,
    queue: bool,
}

impl New {
    pub(super) fn claim(&self, identity: &Identity, time: Time) -> Claim {
        let (units, limit) = match (self.name, self.kind) {
            (0, 1 | 2) | (3, _) => (1, 1),
            // On a name that is a mutex as well: one that shares, and one that does not.
            (0 | 1, 4) => (1, 3),
            (0 | 1, units) => (units, 3),
            // Readers and writers.
            (_, 1 | 2) => (1, u32::MAX),
            _ => (u32::MAX, u32::MAX),
        };
        Claim {
            units,
            limit,
            lock_delay: time.delay(self.delay),
            queue: self.queue,
            ..mutex(identity, NAMES[self.name], time.lease(self.lease))
        }
    }
}

impl Op {
    /// The claim that it is about, among those so far.
    pub(super) fn chosen<'a, T>(&self, claims: &'a [T]) -> Option<&'a T> {
        match self {
            Self::Claim(_) => claims.last(),
            Self::Repeat(n)
            | Self::Renew(n, _)
            | Self::Release(n)
            | Self::ReleaseOther(n)
            | Self::Withdraw(n)
            | Self::Evict(n, _)
            | Self::Check(n) => claims.get(n % claims.len().max(1)),
            Self::Look(_) | Self::List | Self::Pass(_) => None,
        }
    }
}

pub(super) fn sequences(time: Time) -> impl Strategy<Value = Vec<Op>> {
    let new = (
        0..CLIENTS,
        0..NAMES.len(),
        1..5_u32,
        1..40_u64,
        0..3_u64,
        any::<bool>(),
    );
    let new = new.prop_map(|(client, name, kind, lease, delay, queue)| New {
        client,
        name,
        kind,
        lease,
        delay,
        queue,
    });
    let pass = match time {
        Time::Still => Just(Op::List).boxed(),
        Time::Shared | Time::Stepped => (1..30_u64).prop_map(Op::Pass).boxed(),
    };
    let op = prop_oneof![
        6 => new.prop_map(Op::Claim),
        3 => (0..100_usize).prop_map(Op::Repeat),
        2 => (0..100_usize, any::<bool>()).prop_map(|(n, v)| Op::Renew(n, v)),
        5 => (0..100_usize).prop_map(Op::Release),
        1 => (0..100_usize).prop_map(Op::ReleaseOther),
        2 => (0..100_usize).prop_map(Op::Withdraw),
        1 => (0..100_usize, any::<bool>()).prop_map(|(n, all)| Op::Evict(n, all)),
        2 => (0..100_usize).prop_map(Op::Check),
        1 => (0..NAMES.len()).prop_map(Op::Look),
        1 => Just(Op::List),
        3 => pass,
    ];
    proptest::collection::vec(op, 1..60)
}
