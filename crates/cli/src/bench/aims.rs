//! What the embedded store aims at: for information, never a reason to fail.

use serde::Serialize;

use super::report::Report;

/// An aim, and what was seen of it.
#[derive(Debug, Serialize)]
pub(super) struct Aim {
    pub(super) aim: &'static str,
    /// Whether `seen` should be at least or at most `wanted`.
    pub(super) at_least: bool,
    pub(super) wanted: f64,
    pub(super) seen: f64,
    pub(super) met: bool,
}

/// The aims that this run has figures for.
pub(super) fn of(report: &Report) -> Vec<Aim> {
    if report.store != "sqlite" {
        return Vec::new();
    }
    let uncontended = |workers| {
        report
            .uncontended
            .iter()
            .find(move |r| r.workers == workers)
    };
    let handed_over = report.contended.iter().find(|r| r.tasks == 64 && !r.fair);
    let handover = report.handover.as_ref();
    let command = report.command.as_ref();
    let renewal = report.renewal.as_ref();
    let least = |aim, wanted, seen: Option<f64>| seen.map(|seen| judge(aim, true, wanted, seen));
    let most = |aim, wanted, seen: Option<f64>| seen.map(|seen| judge(aim, false, wanted, seen));
    [
        least(
            "uncontended, 1 worker : floor",
            0.7,
            uncontended(1).and_then(|row| row.ratio_to_floor),
        ),
        least(
            "uncontended, 64 workers : 1 worker",
            3.0,
            uncontended(64).and_then(|row| row.ratio_to_one_worker),
        ),
        least(
            "one name, 64 tasks : uncontended, 1 worker",
            20.0,
            handed_over.and_then(|row| row.ratio_to_uncontended),
        ),
        most(
            "hand-over between processes, p50 in us",
            1000.0,
            handover.map(|row| row.latency.p50_us),
        ),
        most(
            "operations of the waiter, long wait - short wait",
            0.5,
            handover.map(|row| row.long_wait_operations - row.operations_per_wait),
        ),
        most(
            "clinch run : flock",
            3.0,
            command.and_then(|row| row.ratio_to_flock),
        ),
        most(
            "10,000 holds of 30 s, % of a core",
            5.0,
            renewal.map(|row| row.cpu_percent_10000_holds_30s),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn judge(aim: &'static str, at_least: bool, wanted: f64, seen: f64) -> Aim {
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
