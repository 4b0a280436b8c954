//! The figures of a run: the fields of `--json`, which are an interface.
//!
//! Rates are per second, spans in the unit that ends their names, percentiles of all workers of a
//! cell together. A part that was not asked for, or not reached, is `null` or an empty list; one
//! that this store cannot have is in `skipped` with the reason.

use clinch::Clinch;
use serde::Serialize;

use super::aims::Aim;
use super::args::Args;
use super::hist::Percentiles;

/// The version of these fields.
const VERSION: u32 = 2;

/// What a run has measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    /// The scheme of the store.
    pub(super) store: &'static str,
    /// How long each cell was measured.
    pub(super) seconds: f64,
    pub(super) quick: bool,
    /// CPUs that this process may use.
    pub(super) cpus: usize,
    /// A signal ended the run early.
    pub(super) interrupted: bool,
    pub(super) floor: Vec<FloorRow>,
    /// The lock that people usually write on this engine.
    pub(super) classic: Vec<FloorRow>,
    pub(super) uncontended: Vec<UncontendedRow>,
    pub(super) contended: Vec<ContendedRow>,
    pub(super) processes: Vec<ProcessesRow>,
    pub(super) handover: Option<HandoverRow>,
    pub(super) command: Option<CommandRow>,
    pub(super) renewal: Option<RenewalRow>,
    pub(super) skipped: Vec<Skipped>,
    /// Names of this run that still have holders or waiters: 0, or something is wrong.
    pub(super) left_behind: Option<usize>,
    /// What this store aims at.
    pub(super) aims: Vec<Aim>,
}

/// Raw operations: the fewest that a lock needs, or those of the usual lock.
#[derive(Debug, Serialize)]
pub(super) struct FloorRow {
    pub(super) workers: u64,
    pub(super) pairs_per_s: f64,
    #[serde(flatten)]
    pub(super) latency: Percentiles,
    /// Pairs that came to nothing: the usual lock may deadlock or stall.
    pub(super) failed: u64,
}

/// Acquire and release, each worker its own name.
#[derive(Debug, Serialize)]
pub(super) struct UncontendedRow {
    pub(super) workers: u64,
    pub(super) pairs_per_s: f64,
    #[serde(flatten)]
    pub(super) latency: Percentiles,
    pub(super) operations_per_acquisition: f64,
    /// To the floor with as many workers.
    pub(super) ratio_to_floor: Option<f64>,
    /// To the usual lock with as many workers.
    pub(super) ratio_to_classic: Option<f64>,
    /// To this same row with one worker.
    pub(super) ratio_to_one_worker: Option<f64>,
}

/// One name, several tasks of one process.
#[derive(Debug, Serialize)]
pub(super) struct ContendedRow {
    pub(super) tasks: u64,
    /// Strict FIFO, no hand-over inside the process.
    pub(super) fair: bool,
    pub(super) acquisitions_per_s: f64,
    /// From asking to entering.
    #[serde(flatten)]
    pub(super) wait: Percentiles,
    /// Most acquisitions of a task by the fewest; `null` when one had none.
    pub(super) fairness: Option<f64>,
    pub(super) operations_per_acquisition: f64,
    /// How often two were inside, or a token did not rise.
    pub(super) violations: u64,
    /// To the uncontended pairs of one worker.
    pub(super) ratio_to_uncontended: Option<f64>,
}

/// One name, so many tasks in each of several processes.
#[derive(Debug, Serialize)]
pub(super) struct ProcessesRow {
    pub(super) processes: usize,
    pub(super) tasks: u32,
    pub(super) fair: bool,
    /// How long each was inside: the median.
    pub(super) section_us: f64,
    pub(super) acquisitions_per_s: f64,
    #[serde(flatten)]
    pub(super) wait: Percentiles,
    /// Most acquisitions of a process by the fewest; `null` when one had none.
    pub(super) fairness: Option<f64>,
    pub(super) operations_per_acquisition: f64,
    /// How often one entered before the last had left (on the clock that all share), or a token
    /// did not rise.
    pub(super) violations: u64,
    pub(super) ratio_to_uncontended: Option<f64>,
}

/// From just before the release in one process to just after the grant in another.
#[derive(Debug, Serialize)]
pub(super) struct HandoverRow {
    pub(super) handovers: u64,
    #[serde(flatten)]
    pub(super) latency: Percentiles,
    /// The same with the engine's bare token, where it has one.
    pub(super) baton: Option<Percentiles>,
    /// The medians of both.
    pub(super) ratio_to_baton: Option<f64>,
    /// Operations of the waiting process from asking to entering, with waits of 3 ms.
    pub(super) operations_per_wait: f64,
    pub(super) long_wait_ms: f64,
    /// The same with long waits: as many, unless it polls.
    pub(super) long_wait_operations: f64,
    /// Times that any thread of the waiting process woke up during a long wait.
    pub(super) long_wait_wakeups: f64,
    pub(super) long_wait_cpu_us: f64,
    pub(super) violations: u64,
}

/// `clinch run NAME -- true` beside `flock FILE true`: medians.
#[derive(Debug, Serialize)]
pub(super) struct CommandRow {
    pub(super) runs: u32,
    pub(super) run_ms: f64,
    pub(super) flock_ms: f64,
    pub(super) ratio_to_flock: Option<f64>,
}

/// Many holds of one process, renewed for a while.
#[derive(Debug, Serialize)]
pub(super) struct RenewalRow {
    pub(super) holds: u64,
    pub(super) lease_s: f64,
    pub(super) window_s: f64,
    /// CPU time of the whole process, in percent of one core.
    pub(super) cpu_percent: f64,
    /// The same for 10,000 holds with leases of 30 s: measured, or scaled from a smaller load.
    pub(super) cpu_percent_10000_holds_30s: f64,
    /// Operations at the engine in that time.
    pub(super) operations: u64,
    /// Holds that were not valid at the end of it.
    pub(super) lost: u64,
    /// How fast the holds were taken, 64 at a time.
    pub(super) acquired_per_s: f64,
}

/// A part that this store cannot have.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) cell: &'static str,
    pub(super) reason: &'static str,
}

impl Report {
    pub(super) fn new(args: &Args, clinch: &Clinch) -> Self {
        Self {
            version: VERSION,
            store: clinch.info().scheme,
            seconds: args.span().as_secs_f64(),
            quick: args.quick,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            interrupted: false,
            floor: Vec::new(),
            classic: Vec::new(),
            uncontended: Vec::new(),
            contended: Vec::new(),
            processes: Vec::new(),
            handover: None,
            command: None,
            renewal: None,
            skipped: Vec::new(),
            left_behind: None,
            aims: Vec::new(),
        }
    }

    pub(super) fn skip(&mut self, cell: &'static str, reason: &'static str) {
        self.skipped.push(Skipped { cell, reason });
    }

    /// Uncontended pairs per second with so many workers.
    pub(super) fn uncontended_rate(&self, workers: u64) -> Option<f64> {
        let row = self.uncontended.iter().find(|row| row.workers == workers);
        row.map(|row| row.pairs_per_s)
    }
}
