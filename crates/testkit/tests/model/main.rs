//! Random commands against the reference machine, by way of the memory store and a manual clock.
//!
//! After each command the invariants are checked from outside: never more units than the limit,
//! tokens that only rise, grants in ticket order, answers that repeat, and nothing left at the end.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod run;

use proptest::prelude::*;

use run::Run;

const NAMES: [&str; 2] = ["a", "b"];
const LIMIT: u32 = 3;
/// Claims that a sequence of commands can speak of.
const CLAIMS: usize = 8;

/// One step of a random run. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    /// Sends a claim, for the first time or again.
    Claim(usize),
    /// Releases with the number that the claim got last, or with an old one.
    Release(usize),
    /// Renews, alone or in a batch with another.
    Renew(usize, usize),
    Withdraw(usize),
    Evict(usize),
    /// A request with a number that nobody got.
    Forge(usize),
    /// Time passes.
    Wait(u64),
    /// Repeats the last claim, release or withdrawal exactly.
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..CLAIMS).prop_map(Step::Claim),
        4 => (0..CLAIMS).prop_map(Step::Release),
        2 => (0..CLAIMS, 0..CLAIMS).prop_map(|(a, b)| Step::Renew(a, b)),
        2 => (0..CLAIMS).prop_map(Step::Withdraw),
        1 => (0..NAMES.len()).prop_map(Step::Evict),
        1 => (0..CLAIMS).prop_map(Step::Forge),
        3 => (0..700_u64).prop_map(Step::Wait),
        2 => Just(Step::Again),
    ]
}

/// How a claim of a run looks: units, lease, lock-delay, whether it queues.
type Shape = (u32, u64, u64, bool);

fn shape() -> impl Strategy<Value = Shape> {
    (
        1..=LIMIT,
        100..1000_u64,
        prop_oneof![Just(0), 1..500_u64],
        any::<bool>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_commands_keep_the_invariants(
        shapes in prop::collection::vec(shape(), CLAIMS),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut run = Run::new(&shapes);
        for step in &steps {
            let before = run.views();
            run.apply(step);
            run.check(&before);
        }
        run.finish();
    }
}
