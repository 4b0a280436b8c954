//! The aims of each store: for information, never a reason to fail.

use serde::Serialize;

use crate::cell::ratio;
use crate::report::{ProcessesRow, Report, UncontendedRow};

/// An aim, and the figure of this run.
#[derive(Debug, Serialize)]
pub(crate) struct Aim {
    pub(crate) aim: &'static str,
    /// Whether `seen` should be at least or at most `wanted`.
    pub(crate) at_least: bool,
    pub(crate) wanted: f64,
    pub(crate) seen: f64,
    pub(crate) met: bool,
}

/// The aims that this run has figures for.
pub(crate) fn of(report: &Report) -> Vec<Aim> {
    let aims = match report.store {
        "sqlite" => embedded(report),
        "redis" | "rediss" | "redis+unix" => redis(report),
        "mysql" => mysql(report),
        "etcd" => etcd(report),
        "zookeeper" => zookeeper(report),
        _ => Vec::new(),
    };
    aims.into_iter().flatten().collect()
}

fn embedded(report: &Report) -> Vec<Option<Aim>> {
    let handover = report.handover.as_ref();
    let command = report.command.as_ref();
    vec![
        least(
            "uncontended, 1 worker : floor",
            0.7,
            uncontended(report, 1).and_then(|row| row.ratio_to_floor),
        ),
        least(
            "uncontended, 64 workers : 1 worker",
            3.0,
            uncontended(report, 64).and_then(|row| row.ratio_to_one_worker),
        ),
        in_one_process(report),
        most(
            "hand-over between processes, p50 in us",
            1000.0,
            handover.map(|row| row.latency.p50_us),
        ),
        no_polling(report),
        most(
            "clinch run : flock",
            3.0,
            command.and_then(|row| row.ratio_to_flock),
        ),
        renewal(report),
    ]
}

fn redis(report: &Report) -> Vec<Option<Aim>> {
    let handover = report.handover.as_ref();
    let crowd = report.processes.iter().find(|r| r.tasks > 1 && !r.fair);
    let fair = report.processes.iter().find(|r| r.tasks > 1 && r.fair);
    let longest = |row: &ProcessesRow| row.wait.p99_us / (64.0 * row.section_us);
    let [one, eight, many] = to_floor(report, 0.9);
    vec![
        one,
        eight,
        many,
        most(
            "hand-over between processes : bare token, p50",
            1.5,
            handover.and_then(|row| row.ratio_to_baton),
        ),
        no_polling(report),
        most(
            "64 tasks in 4 processes, p99 wait : 64 sections",
            1.3,
            crowd.map(longest),
        ),
        most("the same, fair", 1.3, fair.map(longest)),
        operations(report, 3.0),
        most(
            "64 tasks in 4 processes, most : fewest",
            2.0,
            crowd.and_then(|row| row.fairness),
        ),
        in_one_process(report),
        renewal(report),
    ]
}

fn mysql(report: &Report) -> Vec<Option<Aim>> {
    let [one, eight, many] = to_floor(report, 0.85);
    let handover = report.handover.as_ref();
    // A pair of the floor is two commits.
    let floor = report.floor.iter().find(|row| row.workers == 1);
    let commit = floor.map(|row| row.latency.p50_us / 2.0);
    let naive = |workers| uncontended(report, workers).and_then(|row| row.ratio_to_classic);
    vec![
        one,
        eight,
        many,
        least("uncontended, 1 worker : usual lock", 1.0, naive(1)),
        least("uncontended, 8 workers : usual lock", 1.0, naive(8)),
        least("uncontended, 64 workers : usual lock", 1.0, naive(64)),
        most(
            "hand-over between processes : one commit, p50",
            3.0,
            handover
                .zip(commit)
                .and_then(|(row, commit)| ratio(row.latency.p50_us, commit)),
        ),
        operations(report, 4.0),
        in_one_process(report),
    ]
}

fn etcd(report: &Report) -> Vec<Option<Aim>> {
    let [one, eight, many] = to_floor(report, 0.9);
    let handover = report.handover.as_ref();
    vec![
        one,
        eight,
        many,
        most(
            "hand-over between processes : etcd's own Lock, p50",
            0.1,
            handover.and_then(|row| row.ratio_to_baton),
        ),
        no_polling(report),
        operations(report, 4.0),
        in_one_process(report),
    ]
}

fn zookeeper(report: &Report) -> Vec<Option<Aim>> {
    let [one, eight, many] = to_floor(report, 0.9);
    let handover = report.handover.as_ref();
    vec![
        one,
        eight,
        many,
        most(
            "hand-over between processes : the driver's own lock, p50",
            1.0,
            handover.and_then(|row| row.ratio_to_baton),
        ),
        operations(report, 5.0),
        in_one_process(report),
    ]
}

fn to_floor(report: &Report, wanted: f64) -> [Option<Aim>; 3] {
    [
        ("uncontended, 1 worker : floor", 1),
        ("uncontended, 8 workers : floor", 8),
        ("uncontended, 64 workers : floor", 64),
    ]
    .map(|(aim, workers)| {
        let row = uncontended(report, workers);
        least(aim, wanted, row.and_then(|row| row.ratio_to_floor))
    })
}

fn operations(report: &Report, wanted: f64) -> Option<Aim> {
    let crowd = report.processes.iter().find(|r| r.tasks > 1 && !r.fair);
    most(
        "64 tasks in 4 processes, operations",
        wanted,
        crowd.map(|row| row.operations_per_acquisition),
    )
}

fn uncontended(report: &Report, workers: u64) -> Option<&UncontendedRow> {
    report.uncontended.iter().find(|r| r.workers == workers)
}

fn in_one_process(report: &Report) -> Option<Aim> {
    let row = report.contended.iter().find(|r| r.tasks == 64 && !r.fair);
    least(
        "one name, 64 tasks : uncontended, 1 worker",
        20.0,
        row.and_then(|row| row.ratio_to_uncontended),
    )
}

fn no_polling(report: &Report) -> Option<Aim> {
    let row = report.handover.as_ref();
    most(
        "operations of the waiter, long wait - short wait",
        0.5,
        row.map(|row| row.long_wait_operations - row.operations_per_wait),
    )
}

fn renewal(report: &Report) -> Option<Aim> {
    let row = report.renewal.as_ref();
    most(
        "10,000 holds of 30 s, % of a core",
        5.0,
        row.map(|row| row.cpu_percent_10000_holds_30s),
    )
}

fn least(aim: &'static str, wanted: f64, seen: Option<f64>) -> Option<Aim> {
    seen.map(|seen| compare(aim, true, wanted, seen))
}

fn most(aim: &'static str, wanted: f64, seen: Option<f64>) -> Option<Aim> {
    seen.map(|seen| compare(aim, false, wanted, seen))
}

fn compare(aim: &'static str, at_least: bool, wanted: f64, seen: f64) -> Aim {
    Aim {
        aim,
        at_least,
        wanted,
        seen,
        met: if at_least {
            seen >= wanted
        } else {
            seen <= wanted
        },
    }
}
