//! What is known about single programs: which take long, which need threads, which must be alone.

use std::time::Duration;

use crate::programs::Program;

/// The programs that take longest, longest first: they start first, so that none is left at the end
/// with everything else done. A wrong order costs time and nothing else.
const LONGEST: &[&str] = &[
    "clinch-redis conformance",
    "doc tests",
    "clinch-core (lib)",
    "clinch-mysql conformance",
    "clinch-redis quorum",
    "clinch-etcd conformance",
    "clinch-cli verify",
    "clinch-zookeeper ensemble",
    "clinch-mysql patterns",
    "clinch-cli wrong_locks",
    "clinch-mysql faults",
    "clinch-zookeeper conformance",
    "clinch-redis strict",
    "clinch-etcd cluster",
    "clinch-redis sentinel",
    "clinch-mysql model",
    "clinch-mysql rows",
    "clinch-testkit mariadb",
    "clinch-testkit conformance",
    "clinch-redis faults",
    "clinch-testkit etcd",
    "clinch-mysql clock",
    "clinch-sqlite conformance",
    "clinch-zookeeper connect",
    "clinch-etcd faults",
    "clinch-sqlite model",
    "clinch-mysql connect",
    "clinch-verify full_disk",
    "clinch-etcd pauses",
    "clinch-redis model",
    "clinch-mysql kills",
    "clinch-mysql connections",
    "clinch-testkit network",
    "clinch-redis pauses",
];

/// Programs that run alone, after all others, and why.
const ALONE: &[(&str, &str)] = &[
    (
        "clinch-redis quorum",
        "five servers each, and leases of a second that must be renewed at most of them",
    ),
    (
        "clinch-zookeeper ensemble",
        "three Java servers each, which have to start again within a lease",
    ),
    (
        "clinch-testkit toy",
        "each step rewrites a file, under a lock that other processes wait for",
    ),
    (
        "clinch-cli verify",
        "its labs start three servers each, and judge how late clients are",
    ),
];

/// How many tests a program runs at once.
const THREADS: usize = 2;

/// The same for the conformance suite, whose cases wait for leases and not for the processor.
const SUITE_THREADS: usize = 6;

/// How much longer than one test the doc tests may say nothing: they are compiled first.
const COMPILING: u32 = 3;

/// Which programs run side by side, in this order, and which ones run alone after them.
pub(crate) fn order(programs: Vec<Program>) -> (Vec<Program>, Vec<Program>) {
    let is_alone = |program: &Program| ALONE.iter().any(|(name, _)| *name == program.name);
    let (alone, mut beside): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_alone);
    let rank = |program: &Program| LONGEST.iter().position(|name| *name == program.name);
    beside.sort_by_key(|program| {
        let rank = rank(program).unwrap_or(LONGEST.len());
        (rank, usize::MAX - program.count())
    });
    (beside, alone)
}

/// How many tests of the program run at once.
pub(crate) fn threads(program: &Program) -> usize {
    match program.name.ends_with(" conformance") {
        true => SUITE_THREADS,
        false => THREADS,
    }
}

/// For how long the program may print nothing, if its tests may take this long.
pub(crate) fn silence(program: &Program, limit: Duration) -> Duration {
    match program.tests {
        Some(_) => Duration::MAX,
        None => limit * COMPILING,
    }
}
