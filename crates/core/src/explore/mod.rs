//! Schedule exploration: the engine and the memory store, with a simulated network between them, on one
//! thread. A seeded random generator makes every choice.
//!
//! The choices: which task runs next, which message arrives next, when and how much time passes, which
//! call is dropped, which client is closed, which message is lost, late or duplicated. Invariants are
//! checked after every step; see [`harness`] and [`finish`]. Tasks are interleaved only where they wait:
//! two threads inside one poll are not explored.
//!
//! `CLINCH_EXPLORE_SEED` is the first seed, `CLINCH_EXPLORE_RUNS` how many seeds from there. A seed
//! that fails is printed with a trace of its steps, and replays exactly:
//! `CLINCH_EXPLORE_SEED=4711 CLINCH_EXPLORE_RUNS=1 cargo test -p clinch-core --lib explore`.

mod finish;
mod harness;
pub(crate) mod hook;
mod inject;
mod messages;
mod net;
mod plan;
mod rng;
mod run;
mod store;
mod tasks;
mod user;

use std::panic::{AssertUnwindSafe, catch_unwind};

const FIRST: u64 = 1;
const RUNS: u64 = 25_000;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// The violation that this seed leads to, if any, and the trace.
fn explore(seed: u64, trace: bool) -> (Option<String>, Vec<String>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, trace)));
    let violation = match outcome {
        Ok(outcome) => outcome.violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            Some(format!("a panic: {}", text.unwrap_or("without a text")))
        }
    };
    (violation, hook::uninstall())
}

#[test]
fn every_interleaving_keeps_the_promises() {
    let first = setting("CLINCH_EXPLORE_SEED").unwrap_or(FIRST);
    let runs = setting("CLINCH_EXPLORE_RUNS").unwrap_or(RUNS);
    let clock = crate::Clock::boot();
    let begun = clock.now();
    for seed in first..first + runs {
        if let Some(violation) = explore(seed, false).0 {
            let took = clock.now().since(begun);
            panic!(
                "seed {seed}, interleaving {} after {took:?}: {violation}\n  {}\n\
                 replay: CLINCH_EXPLORE_SEED={seed} CLINCH_EXPLORE_RUNS=1 \
                 cargo test -p clinch-core --lib explore",
                seed - first + 1,
                explore(seed, true).1.join("\n  ")
            );
        }
    }
    let took = clock.now().since(begun);
    eprintln!("explored {runs} interleavings from seed {first} in {took:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 1..=100 {
        let (a, b) = (run::run(seed, false), run::run(seed, true));
        let same =
            a.fingerprint == b.fingerprint && a.steps == b.steps && a.violation == b.violation;
        assert!(same, "seed {seed}: {} and {} steps", a.steps, b.steps);
    }
}

/// If no driver can be spawned, each caller gets one error.
#[test]
fn without_a_keeper_waiters_get_an_error() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    let context = crate::Clinch::context("app").unwrap();
    let store = std::sync::Arc::new(crate::memory::MemoryStore::new(context.clone()));
    let other = crate::Clinch::context("app").unwrap();
    let sibling = std::sync::Arc::new(store.sibling(other.clone()));
    let (here, there) = (
        crate::Clinch::builder(store, context).build(),
        crate::Clinch::builder(sibling, other).build(),
    );
    let _held = crate::blocking::block_on(there.lock("a").acquire()).unwrap();
    hook::install(1, false);
    hook::refuse(u32::MAX);
    let lock = here.lock("a");
    for _ in 0..2 {
        let mut waiting = Box::pin(lock.acquire());
        let polled = waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(error)) = polled else {
            panic!("{polled:?}");
        };
        // The claim is in the queue, and cannot be withdrawn.
        assert!(error.may_have_taken_effect(), "{error}");
    }
    hook::uninstall();
}
