//! Plays sequences on both sides.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{Admin, Claim};
use clinch_core::{Clinch, Clock, Identity};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::ops::{CLIENTS, NAMES, Op, sequences};
use super::side::Side;
use super::{Real, Time};

/// More ends of one name than a store remembers would be told apart by their order.
const MOST_CLAIMS: usize = 8;
/// Half of what lies between the end of a lease and the next look at it.
const SLOWEST: Duration = Duration::from_millis(300);

/// Plays so many random sequences on the store and on the reference; panics with the shortest that
/// shows a difference. See the [module](super).
pub fn play(real: &impl Real, cases: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let (played, judged) = (Cell::new(0), Cell::new(0));
    let outcome = TestRunner::new(config).run(&sequences(real.time()), |ops| {
        played.set(played.get() + 1);
        if runtime.block_on(compare(real, played.get(), ops))? {
            judged.set(judged.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(judged.get() > 0, "no sequence was played in time");
}

/// Whether the sequence was played in time.
async fn compare(real: &impl Real, case: usize, ops: Vec<Op>) -> Result<bool, TestCaseError> {
    let (time, exact) = (real.time(), real.exact());
    let (manual, hand) = Clock::manual();
    let identities: Vec<Arc<Identity>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let context = |identity: &Arc<Identity>, clock: &Clock| {
        let context = Clinch::context(&format!("n{case}")).unwrap();
        context
            .with_identity(identity.clone())
            .with_clock(clock.clone())
    };
    let first = MemoryStore::new(context(&identities[0], &manual));
    let second = first.sibling(context(&identities[1], &manual));
    let mut model = Side::new(vec![Arc::new(first), Arc::new(second)], time, exact);
    let boot = Clock::boot();
    let clock = if time == Time::Shared { &manual } else { &boot };
    let mut stores: Vec<Arc<dyn Admin>> = Vec::new();
    for identity in &identities {
        stores.push(real.open(context(identity, clock)).await.unwrap());
    }
    let mut tested = Side::new(stores, time, exact);
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    let (began, mut judged) = (boot.now(), true);
    'sequence: for op in ops {
        if let Op::Pass(seconds) = op {
            let span = Duration::from_secs(seconds);
            hand.advance(span);
            real.pass(span);
            continue;
        }
        if let Op::Claim(new) = &op {
            let name = NAMES[new.name];
            let so_far = claims.iter().filter(|(_, c)| c.name.as_str() == name);
            if !exact && so_far.count() >= MOST_CLAIMS {
                continue;
            }
            let claim = new.claim(&identities[new.client], time);
            claims.push((new.client, claim));
        }
        let chosen = op.chosen(&claims);
        // Nobody renews or releases what it has not heard to be granted.
        if !exact
            && matches!(op, Op::Renew(..) | Op::Release(_) | Op::ReleaseOther(_))
            && !chosen.is_some_and(|(_, claim)| tested.heard(claim))
        {
            continue;
        }
        let mut steps = vec![(&op, chosen)];
        let repeat = Op::Repeat(0);
        if real.hears_at_once() && matches!(op, Op::Release(_) | Op::Withdraw(_) | Op::Evict(..)) {
            // Who is granted now hears of it at once: to the reference it is a holder.
            let name = chosen.map(|(_, claim)| &claim.name);
            let others = claims.iter().filter(|(_, c)| Some(&c.name) == name);
            steps.extend(others.map(|other| (&repeat, Some(other))));
        }
        for (nth, (op, chosen)) in steps.into_iter().enumerate() {
            let client = chosen.map_or(0, |(client, _)| *client);
            let claim = chosen.map(|(_, claim)| claim);
            if nth > 0 && !claim.is_some_and(|claim| model.waits(claim)) {
                continue;
            }
            let expected = model.apply(op, client, claim).await;
            let answered = tested.apply(op, client, claim).await;
            if time == Time::Stepped && boot.now().since(began) > SLOWEST {
                judged = false;
                break 'sequence;
            }
            prop_assert!(
                real.agree(&answered, &expected),
                "{op:?}: {answered:?} instead of {expected:?}"
            );
        }
    }
    for store in tested.stores {
        store.close().await.unwrap();
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use clinch_core::store::OpenContext;

    use super::*;

    /// Each client has locks of its own, and so excludes nobody.
    struct Apart {
        exact: bool,
    }

    impl Real for Apart {
        async fn open(&self, context: OpenContext) -> clinch_core::Result<Arc<dyn Admin>> {
            Ok(Arc::new(MemoryStore::new(context)))
        }

        fn time(&self) -> Time {
            Time::Shared
        }

        fn exact(&self) -> bool {
            self.exact
        }
    }

    #[test]
    #[should_panic(expected = "instead of")]
    fn a_store_that_does_not_exclude_is_noticed() {
        play(&Apart { exact: false }, 100);
    }

    #[test]
    #[should_panic(expected = "instead of")]
    fn a_store_that_does_not_exclude_is_noticed_when_compared_exactly() {
        play(&Apart { exact: true }, 100);
    }
}
