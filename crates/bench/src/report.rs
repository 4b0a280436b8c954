//! The figures of a run: the fields of `--json`, which are an interface.
//!
//! Rates are per second, spans in the unit that ends their names, percentiles of all workers of a
//! cell together. A part that was not requested, or not reached, is `null` or an empty list; one
//! that this store cannot have is in `skipped` with the reason.

use clinch::Clinch;
use serde::Serialize;

use crate::aims::Aim;
use crate::args::Args;
use crate::hist::Percentiles;

/// The version of these fields.
const VERSION: u32 = 2;

/// The figures of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    /// The scheme of the store.
    pub(crate) store: &'static str,
    /// How long each cell was measured.
    pub(crate) seconds: f64,
    pub(crate) quick: bool,
    /// CPUs that this process may use.
    pub(crate) cpus: usize,
    /// A signal ended the run early.
    pub(crate) interrupted: bool,
    pub(crate) floor: Vec<FloorRow>,
    /// The naive lock: the one that applications commonly write on this engine.
    pub(crate) classic: Vec<FloorRow>,
    pub(crate) uncontended: Vec<UncontendedRow>,
    pub(crate) contended: Vec<ContendedRow>,
    pub(crate) processes: Vec<ProcessesRow>,
    pub(crate) handover: Option<HandoverRow>,
    pub(crate) command: Option<CommandRow>,
    pub(crate) renewal: Option<RenewalRow>,
    pub(crate) skipped: Vec<Skipped>,
    /// Names of this run that still have holders or waiters: 0, or something is wrong.
    pub(crate) left_behind: Option<usize>,
    /// The aims of this store.
    pub(crate) aims: Vec<Aim>,
}

/// A baseline: the floor, or the naive lock.
#[derive(Debug, Serialize)]
pub(crate) struct FloorRow {
    pub(crate) workers: u64,
    pub(crate) pairs_per_s: f64,
    #[serde(flatten)]
    pub(crate) latency: Percentiles,
    /// Pairs that failed: the naive lock may deadlock or stall.
    pub(crate) failed: u64,
}

/// Acquire and release, each worker its own name.
#[derive(Debug, Serialize)]
pub(crate) struct UncontendedRow {
    pub(crate) workers: u64,
    pub(crate) pairs_per_s: f64,
    #[serde(flatten)]
    pub(crate) latency: Percentiles,
    pub(crate) operations_per_acquisition: f64,
    /// To the floor with as many workers.
    pub(crate) ratio_to_floor: Option<f64>,
    /// To the naive lock with as many workers.
    pub(crate) ratio_to_classic: Option<f64>,
    /// To this same row with one worker.
    pub(crate) ratio_to_one_worker: Option<f64>,
}

/// One name, several tasks of one process.
#[derive(Debug, Serialize)]
pub(crate) struct ContendedRow {
    pub(crate) tasks: u64,
    /// Strict FIFO, no hand-over inside the process.
    pub(crate) fair: bool,
    pub(crate) acquisitions_per_s: f64,
    /// From the claim to the grant.
    #[serde(flatten)]
    pub(crate) wait: Percentiles,
    /// Most acquisitions of a task divided by the fewest; `null` if a task had none.
    pub(crate) fairness: Option<f64>,
    pub(crate) operations_per_acquisition: f64,
    /// How often two tasks were inside, or a token did not rise.
    pub(crate) violations: u64,
    /// To the uncontended pairs of one worker.
    pub(crate) ratio_to_uncontended: Option<f64>,
}

/// One name, `tasks` tasks in each of several processes.
#[derive(Debug, Serialize)]
pub(crate) struct ProcessesRow {
    pub(crate) processes: usize,
    pub(crate) tasks: u32,
    pub(crate) fair: bool,
    /// Median time inside.
    pub(crate) section_us: f64,
    pub(crate) acquisitions_per_s: f64,
    #[serde(flatten)]
    pub(crate) wait: Percentiles,
    /// Most acquisitions of a process divided by the fewest; `null` if a process had none.
    pub(crate) fairness: Option<f64>,
    pub(crate) operations_per_acquisition: f64,
    /// How often a task entered before the previous one left (on the clock that all processes share), or a
    /// token did not rise.
    pub(crate) violations: u64,
    pub(crate) ratio_to_uncontended: Option<f64>,
}

/// From just before the release in one process to just after the grant in another.
#[derive(Debug, Serialize)]
pub(crate) struct HandoverRow {
    pub(crate) handovers: u64,
    #[serde(flatten)]
    pub(crate) latency: Percentiles,
    /// The same with the engine's bare token, if it has one.
    pub(crate) baton: Option<Percentiles>,
    /// The medians of both.
    pub(crate) ratio_to_baton: Option<f64>,
    /// Operations of the waiting process from the claim to the grant, with waits of 3 ms.
    pub(crate) operations_per_wait: f64,
    pub(crate) long_wait_ms: f64,
    /// The same with long waits: as many, unless it polls.
    pub(crate) long_wait_operations: f64,
    /// Times that any thread of the waiting process woke up during a long wait.
    pub(crate) long_wait_wakeups: f64,
    pub(crate) long_wait_cpu_us: f64,
    pub(crate) violations: u64,
}

/// `clinch run NAME -- true` beside `flock FILE true`: medians.
#[derive(Debug, Serialize)]
pub(crate) struct CommandRow {
    pub(crate) runs: u32,
    pub(crate) run_ms: f64,
    pub(crate) flock_ms: f64,
    pub(crate) ratio_to_flock: Option<f64>,
}

/// Many holds of one process, renewed for a while.
#[derive(Debug, Serialize)]
pub(crate) struct RenewalRow {
    pub(crate) holds: u64,
    pub(crate) lease_s: f64,
    pub(crate) window_s: f64,
    /// CPU time of the whole process, in percent of one core.
    pub(crate) cpu_percent: f64,
    /// The same for 10,000 holds with leases of 30 s: measured, or scaled from a smaller load.
    pub(crate) cpu_percent_10000_holds_30s: f64,
    /// Operations at the engine in that time.
    pub(crate) operations: u64,
    /// Holds that were not valid at the end of it.
    pub(crate) lost: u64,
    /// How fast the holds were taken, 64 at a time.
    pub(crate) acquired_per_s: f64,
}

/// A part that this store cannot have.
#[derive(Debug, Serialize)]
pub(crate) struct Skipped {
    pub(crate) cell: &'static str,
    pub(crate) reason: &'static str,
}

impl Report {
    pub(crate) fn new(args: &Args, clinch: &Clinch) -> Self {
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

    pub(crate) fn skip(&mut self, cell: &'static str, reason: &'static str) {
        self.skipped.push(Skipped { cell, reason });
    }

    /// Uncontended pairs per second with this number of workers.
    pub(crate) fn uncontended_rate(&self, workers: u64) -> Option<f64> {
        let row = self.uncontended.iter().find(|row| row.workers == workers);
        row.map(|row| row.pairs_per_s)
    }
}
