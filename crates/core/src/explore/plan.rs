//! What one run is made of. Each run has only some of the disturbances: a run with all of them at
//! once would seldom get far enough to show what one of them does.

use std::time::Duration;

use super::rng::Rng;
use crate::HandOver;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: usize,
    pub(super) users: usize,
    /// How often each user asks for a lock.
    pub(super) acts: usize,
    pub(super) names: usize,
    pub(super) lease: Duration,
    pub(super) lock_delay: Duration,
    pub(super) patience: Duration,
    pub(super) hand_over: HandOver,
    /// The rate of each client's clock, in thousandths of the store's.
    pub(super) rates: Vec<u32>,
    /// How much likelier a task runs than a message arrives.
    pub(super) eager: usize,
    /// Nothing is disturbed at all: then nothing may fail and nothing may be lost.
    pub(super) calm: bool,
    /// Users keep a lock for no time and ask again at once: many grants come between a request and
    /// its late copy.
    pub(super) storm: bool,
    /// How often in a thousand messages something goes wrong with one.
    pub(super) faults: usize,
    /// These are per mille of the steps.
    pub(super) cancels: usize,
    pub(super) closes: usize,
    pub(super) evicts: usize,
    pub(super) doubts: usize,
    pub(super) cuts: usize,
    pub(super) jumps: usize,
    pub(super) refusals: usize,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let calm = rng.chance(150);
        let storm = rng.chance(200);
        let mut sometimes = |per_mille: usize| match rng.chance(400) && !calm {
            true => per_mille,
            false => 0,
        };
        let faults = sometimes(120);
        let evicts = sometimes(15);
        let doubts = sometimes(20);
        let cuts = sometimes(20);
        let jumps = sometimes(40);
        let refusals = sometimes(4) * usize::from(evicts == 0);
        // These two disturb nothing by themselves.
        let cancels = 50 * usize::from(rng.chance(500));
        let closes = 15 * usize::from(rng.chance(400));
        let clients = 1 + rng.below(3);
        let seconds = Duration::from_secs;
        Self {
            clients,
            users: 2 + rng.below(3),
            acts: if storm { 8 } else { 1 + rng.below(3) },
            names: if storm { 1 } else { 1 + rng.below(3) },
            lease: seconds(rng.pick(&[2, 60, 60])),
            lock_delay: seconds(rng.pick(&[0, 0, 5])),
            patience: seconds(rng.pick(&[1, 5])),
            hand_over: rng.pick(&[HandOver::default(), HandOver::OFF]),
            rates: (0..clients).map(|_| rng.pick(&[995, 1000, 1005])).collect(),
            eager: rng.pick(&[1, 1, 4, 12]),
            calm,
            storm,
            faults,
            cancels,
            closes,
            evicts,
            doubts,
            cuts,
            jumps,
            refusals,
        }
    }

    /// How long everything may take, once nothing is disturbed and nobody asks any more, until
    /// nothing is left: requests that are not answered are given up after the patience, and
    /// repeated; a renewal is given up after a third of the lease. Half a lease must be left, or a
    /// lease that ran out would hide what was left behind.
    pub(super) fn quiet_within(&self) -> Duration {
        (self.patience * 2).max(self.lease / 3) + Duration::from_secs(10)
    }

    /// How long users may take to end, once nothing is disturbed: each may keep its lock for six
    /// leases, and wait for leases and delays of those who were cut off or closed.
    pub(super) fn users_within(&self) -> Duration {
        let users = u32::try_from(self.users).unwrap_or(u32::MAX);
        (self.lease * 7 + self.lock_delay) * users + Duration::from_secs(120)
    }
}

/// A lock that users ask for: name, units, limit.
pub(super) type LockKind = (&'static str, u32, u32);

pub(super) const KINDS: [LockKind; 5] = [
    ("mutex", 1, 1),
    ("permits", 1, 2),
    ("permits", 2, 2),
    ("shared", 1, u32::MAX),
    ("shared", u32::MAX, u32::MAX),
];

/// Which of the kinds are of the first `names` names.
pub(super) fn kinds(names: usize) -> &'static [LockKind] {
    match names {
        1 => &KINDS[..1],
        2 => &KINDS[..3],
        _ => &KINDS,
    }
}
