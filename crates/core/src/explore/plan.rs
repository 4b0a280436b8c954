//! Parameters of one run. Each run has only some of the disturbances: with all of them at once, few
//! runs would get far enough to show the effect of one.

use std::time::Duration;

use super::rng::Rng;
use crate::HandOver;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) clients: usize,
    pub(super) users: usize,
    /// How many locks each user claims, one after the other.
    pub(super) calls: usize,
    pub(super) names: usize,
    pub(super) lease: Duration,
    pub(super) lock_delay: Duration,
    pub(super) patience: Duration,
    pub(super) hand_over: HandOver,
    /// The rate of each client's clock, in thousandths of the store's.
    pub(super) rates: Vec<u32>,
    /// How much more likely a task runs than a message arrives.
    pub(super) task_weight: usize,
    /// No disturbances: no call may fail, no hold may be lost.
    pub(super) calm: bool,
    /// Users release at once and claim again: many grants happen between a request and its late copy.
    pub(super) storm: bool,
    /// Network faults, per mille of the messages.
    pub(super) faults: usize,
    /// The rest: per mille of the steps.
    pub(super) cancels: usize,
    pub(super) closes: usize,
    pub(super) evicts: usize,
    pub(super) suspicions: usize,
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
        let suspicions = sometimes(20);
        let cuts = sometimes(20);
        let jumps = sometimes(40);
        let refusals = sometimes(4) * usize::from(evicts == 0);
        // These two are no faults: a calm run may have them.
        let cancels = 50 * usize::from(rng.chance(500));
        let closes = 15 * usize::from(rng.chance(400));
        let clients = 1 + rng.below(3);
        let seconds = Duration::from_secs;
        Self {
            clients,
            users: 2 + rng.below(3),
            calls: if storm { 8 } else { 1 + rng.below(3) },
            names: if storm { 1 } else { 1 + rng.below(3) },
            lease: seconds(rng.pick(&[2, 60, 60])),
            lock_delay: seconds(rng.pick(&[0, 0, 5])),
            patience: seconds(rng.pick(&[1, 5])),
            hand_over: rng.pick(&[HandOver::default(), HandOver::OFF]),
            rates: (0..clients).map(|_| rng.pick(&[995, 1000, 1005])).collect(),
            task_weight: rng.pick(&[1, 1, 4, 12]),
            calm,
            storm,
            faults,
            cancels,
            closes,
            evicts,
            suspicions,
            cuts,
            jumps,
            refusals,
        }
    }

    /// Time limit until nothing is left, once the disturbances and the calls have ended. Unanswered
    /// requests time out after the patience and are repeated; a renewal times out after a third of the
    /// lease. The limit must leave half a lease: an expired lease would hide what was left behind.
    pub(super) fn idle_within(&self) -> Duration {
        (self.patience * 2).max(self.lease / 3) + Duration::from_secs(10)
    }

    /// Time limit for users to end, once the disturbances have ended: each may hold its lock for six
    /// leases, and wait for the leases and delays of clients that were cut off or closed.
    pub(super) fn users_within(&self) -> Duration {
        let users = u32::try_from(self.users).unwrap_or(u32::MAX);
        (self.lease * 7 + self.lock_delay) * users + Duration::from_secs(120)
    }
}

/// A lock that users claim: name, units, limit.
pub(super) type LockKind = (&'static str, u32, u32);

pub(super) const KINDS: [LockKind; 5] = [
    ("mutex", 1, 1),
    ("permits", 1, 2),
    ("permits", 2, 2),
    ("shared", 1, u32::MAX),
    ("shared", u32::MAX, u32::MAX),
];

/// The kinds with the first `names` names.
pub(super) fn kinds(names: usize) -> &'static [LockKind] {
    match names {
        1 => &KINDS[..1],
        2 => &KINDS[..3],
        _ => &KINDS,
    }
}
