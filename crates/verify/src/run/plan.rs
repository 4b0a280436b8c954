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
    Link(LinkFault),
    /// A fault of the engine, by its number.
    Engine(usize),
}

/// An endless sequence of faults.
#[derive(Debug)]
pub(crate) struct Plan {
    rng: Rng,
    lease_ms: u64,
    kinds: Vec<What>,
    /// What is left of the present round: every kind comes before any comes again.
    round: Vec<What>,
}

impl Plan {
    pub(crate) fn new(seed: u64, purpose: u64, lease: Duration, kinds: Vec<What>) -> Self {
        Self {
            rng: Rng::new(seed, purpose),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(1000),
            kinds,
            round: Vec::new(),
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
        ];
        faults.map(What::Link).to_vec()
    }

    pub(crate) fn next(&mut self) -> Option<Planned> {
        if self.round.is_empty() {
            self.round = self.kinds.clone();
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
            What::Kill | What::Evict | What::Link(LinkFault::Reset | LinkFault::HalfOpen) => (0, 0),
            What::PauseShort => (lease / 10, lease * 6 / 10),
            What::PauseLong | What::Stall => (lease * 11 / 10, lease * 5 / 2),
            // A half of them outlasts the lease.
            What::Link(_) | What::Engine(_) => (lease / 10, lease * 2),
        };
        // An engine that is disturbed all the time grants little, and little is seen.
        let gaps = match what {
            What::Engine(_) => (lease / 2, lease * 2),
            _ => (lease / 8, lease),
        };
        Some(Planned {
            gap: Duration::from_millis(self.rng.between(gaps.0, gaps.1)),
            span: Duration::from_millis(self.rng.between(least, most)),
            pick: self.rng.next(),
            what,
        })
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
    fn nothing_to_disturb_is_no_plan() {
        assert_eq!(
            Plan::new(1, 1, Duration::from_secs(1), Vec::new()).next(),
            None
        );
    }
}
