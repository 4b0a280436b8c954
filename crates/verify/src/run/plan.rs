//! Which faults come when: a function of the seed and of what there is to disturb.

use std::time::Duration;

use super::route::LinkFault;
use crate::rng::Rng;

/// A fault to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    /// How long nothing happens before it.
    pub(crate) gap: Duration,
    pub(crate) what: What,
    /// How long it lasts.
    pub(crate) span: Duration,
    /// Chooses the victim.
    pub(crate) pick: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Kill,
    /// Shorter than the lease.
    PauseShort,
    /// Longer than the lease.
    PauseLong,
    /// Every thread of the victim's runtime is blocked, longer than the lease.
    Stall,
    /// An operator breaks a hold.
    Evict,
    /// One of the victim's two clients is closed while its tasks use it, and opened again.
    Close,
    /// The victim forks, and the child uses its parent's client.
    Fork,
    /// Somebody looks into the file of an embedded store.
    Peek,
    Link(LinkFault),
    Engine(OfEngine),
}

/// A fault of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfEngine {
    pub(crate) number: usize,
    /// Whether there is something that the store does not promise under it.
    pub(crate) excuses: bool,
}

/// After the first round, time under excuses is followed by so many times as much without: a run says
/// nothing about what it excuses, so that must be the smaller part of it by far.
const REST_AFTER_EXCUSES: u64 = 7;

/// One gap of the engine in so many is a calm one, of so many leases: only there can a run see that a hold was
/// lost without a reason, or by a fault that is no reason.
const CALM_ONE_IN: u64 = 4;
const CALM_LEASES: (u64, u64) = (8, 12);

/// An endless sequence of faults.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: Rng,
    lease_ms: u64,
    kinds: Vec<What>,
    /// What is left of the present round: every kind comes before any comes again.
    round: Vec<What>,
    rounds: u64,
}

impl Plan {
    pub(crate) fn new(seed: u64, purpose: u64, lease: Duration, kinds: Vec<What>) -> Self {
        Self {
            rng: Rng::new(seed, purpose),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(1000),
            kinds,
            round: Vec::new(),
            rounds: 0,
        }
    }

    /// What is done to worker processes.
    pub(crate) fn of_workers() -> Vec<What> {
        vec![
            What::Kill,
            What::PauseShort,
            What::PauseLong,
            What::Stall,
            What::Evict,
            What::Close,
            What::Fork,
        ]
    }

    /// What is done to connections.
    pub(crate) fn of_links() -> Vec<What> {
        let faults = [
            LinkFault::Reset,
            LinkFault::HalfOpen,
            LinkFault::Delay,
            LinkFault::HoldAndFlush,
            LinkFault::RequestsLost,
            LinkFault::RepliesLost,
            LinkFault::ReplySwallowed(1, true),
            LinkFault::Refused,
            LinkFault::Kept,
        ];
        faults.map(What::Link).to_vec()
    }

    /// Whether no kind has come twice so far.
    pub(crate) fn is_first_round(&self) -> bool {
        self.rounds <= 1
    }

    pub(crate) fn next(&mut self) -> Option<Planned> {
        if self.round.is_empty() {
            self.round = self.kinds.clone();
            self.rounds += 1;
        }
        let choices = u64::try_from(self.round.len()).ok()?;
        let at = usize::try_from(self.rng.below(choices)).ok()?;
        let what = match self.round.get(at)? {
            What::Link(LinkFault::ReplySwallowed(..)) => {
                let (nth, reset) = (self.rng.between(1, 12), self.rng.one_in(2));
                What::Link(LinkFault::ReplySwallowed(nth, reset))
            }
            other => other.clone(),
        };
        self.round.swap_remove(at);
        let lease = self.lease_ms;
        let (least, most) = match what {
            What::Kill | What::Evict | What::Close | What::Fork | What::Peek => (0, 0),
            What::Link(LinkFault::Reset | LinkFault::HalfOpen) => (0, 0),
            What::PauseShort => (lease / 10, lease * 6 / 10),
            What::PauseLong | What::Stall => (lease * 11 / 10, lease * 5 / 2),
            // A half of them outlasts the lease.
            What::Link(_) | What::Engine(_) => (lease / 10, lease * 2),
        };
        let span = self.rng.between(least, most);
        let gap = self.gap(&what, span);
        Some(Planned {
            gap: Duration::from_millis(gap),
            span: Duration::from_millis(span),
            pick: self.rng.next(),
            what,
        })
    }

    /// How long nothing happens before a fault, in milliseconds. The engine's faults touch every client,
    /// so they come thinner than the others; but a short run is to meet each of them.
    fn gap(&mut self, what: &What, span: u64) -> u64 {
        let lease = self.lease_ms;
        match what {
            What::Engine(fault) if self.rounds > 1 => match fault.excuses {
                true => (span + lease) * REST_AFTER_EXCUSES + self.rng.below(lease),
                false if self.rng.one_in(CALM_ONE_IN) => self
                    .rng
                    .between(lease * CALM_LEASES.0, lease * CALM_LEASES.1),
                false => self.rng.between(lease, lease * 4),
            },
            _ => self.rng.between(lease / 8, lease),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64) -> Vec<Planned> {
        let mut plan = Plan::new(seed, 1, Duration::from_secs(1), Plan::of_links());
        std::iter::from_fn(|| plan.next()).take(40).collect()
    }

    #[test]
    fn a_seed_gives_one_schedule() {
        assert_eq!(schedule(5), schedule(5));
        assert_ne!(schedule(5), schedule(6));
    }

    #[test]
    fn every_kind_comes_in_each_round() {
        let kinds = Plan::of_links().len();
        let mut names: Vec<_> = schedule(9)
            .into_iter()
            .take(kinds)
            .map(|planned| match planned.what {
                What::Link(fault) => fault.name(),
                other => panic!("{other:?}"),
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kinds);
    }

    #[test]
    fn a_short_run_meets_every_fault_of_the_engine_and_a_long_one_excuses_little() {
        let kinds: Vec<_> = (0..4)
            .map(|number| {
                What::Engine(OfEngine {
                    number,
                    excuses: number >= 2,
                })
            })
            .collect();
        let lease = Duration::from_secs(1);
        let mut plan = Plan::new(3, 3, lease, kinds.clone());
        let mut next = || plan.next().unwrap();
        let first: Duration = (0..4).map(|_| next()).map(|p| p.gap + p.span).sum();
        assert!(first <= lease * 3 * 4, "{first:?}");
        let (mut all, mut excused) = (Duration::ZERO, Duration::ZERO);
        for planned in (0..400).map(|_| next()) {
            all += planned.gap + planned.span;
            if matches!(planned.what, What::Engine(fault) if fault.excuses) {
                excused += planned.span + lease;
            }
        }
        assert!(excused * 100 < all * 15, "{excused:?} of {all:?}");
    }

    #[test]
    fn a_third_of_a_long_run_is_far_from_faults_of_the_engine() {
        let fault = |number| OfEngine {
            number,
            excuses: false,
        };
        let kinds: Vec<_> = (0..5).map(|n| What::Engine(fault(n))).collect();
        let lease = Duration::from_millis(1500);
        let mut plan = Plan::new(3, 3, lease, kinds);
        let (mut all, mut calm) = (Duration::ZERO, Duration::ZERO);
        for planned in (0..400).map(|_| plan.next().unwrap()) {
            all += planned.gap + planned.span;
            // The reply timeout and a third of a lease after the last fault, and a lease without one.
            let settled = Duration::from_secs(2) + lease / 3 + lease;
            calm += planned.gap.saturating_sub(settled);
        }
        assert!(calm * 100 > all * 30, "{calm:?} of {all:?}");
    }

    #[test]
    fn nothing_to_disturb_is_no_plan() {
        assert_eq!(
            Plan::new(1, 1, Duration::from_secs(1), Vec::new()).next(),
            None
        );
    }
}
