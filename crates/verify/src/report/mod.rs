//! What a run came to: for people, for programs, and as a page with pictures.

mod overview;
mod page;
mod picture;
mod svg;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use clinch::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::check::{Findings, Index, Property, Violation, check, op_name};
use crate::history::{Event, History, Outcome, Start};

/// The version of the JSON.
const VERSION: u32 = 1;
/// The most violations that are told one by one.
const TOLD: usize = 20;

/// What a run came to.
///
/// ```no_run
/// let report = clinch_verify::replay("history.jsonl".as_ref(), None)?;
/// println!("{}", if report.passed() { "no violation" } else { report.broken()[0].as_str() });
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug)]
pub struct Report {
    start: Start,
    counts: Counts,
    faults: BTreeMap<String, u64>,
    findings: Findings,
    /// What kept the run from being a whole one.
    problems: Vec<String>,
    /// It was told to stop before its time.
    pub(crate) interrupted: bool,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    seconds: f64,
    events: usize,
    operations: u64,
    grants: u64,
    /// Acquires of which nobody knows how they ended.
    unknown: u64,
    losses: u64,
    processes: u64,
    killed: u64,
}

#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    passed: bool,
    interrupted: bool,
    store: &'a str,
    versions: &'a [String],
    seed: u64,
    clients: usize,
    workloads: &'a [String],
    #[serde(flatten)]
    counts: &'a Counts,
    faults: u64,
    fault_kinds: &'a BTreeMap<String, u64>,
    missing: &'a [String],
    violations: Vec<Told<'a>>,
    violation_count: usize,
    excused: BTreeMap<&'static str, usize>,
    excused_seconds: f64,
    grants_unexcused: u64,
    recovery_ms: Spread,
    late_signal_ms: Spread,
    unordered_beside: u64,
    fenced: Updates,
    unfenced: Updates,
    calm: Calm,
    problems: &'a [String],
}

#[derive(Debug, Serialize)]
struct Told<'a> {
    property: Property,
    lock: &'a str,
    message: &'a str,
    operations: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Spread {
    count: usize,
    p99: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Updates {
    updates: u64,
    lost: u64,
    refused: u64,
}

/// Seconds without a fault, in which requests were counted.
#[derive(Debug, Serialize)]
struct Calm {
    requests: u64,
    operations: u64,
}

impl Report {
    pub(crate) fn of(history: &History, problems: Vec<String>) -> Self {
        let mut faults = BTreeMap::new();
        for fault in history.faults() {
            *faults.entry(fault.kind.clone()).or_insert(0) += 1;
        }
        Self {
            start: history.start().cloned().unwrap_or_default(),
            counts: Counts::of(history),
            faults,
            findings: check(history),
            problems,
            interrupted: false,
        }
    }

    /// Whether no promise was broken, and the run was as it should be.
    pub fn passed(&self) -> bool {
        self.findings.violations.is_empty() && self.problems.is_empty()
    }

    /// The promises that were broken, each once.
    pub fn broken(&self) -> Vec<Property> {
        let mut broken: Vec<_> = self
            .findings
            .violations
            .iter()
            .map(|v| v.property)
            .collect();
        broken.sort_unstable();
        broken.dedup();
        broken
    }

    /// Whether it was told to stop before its time.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// For people.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// For programs: one line.
    pub fn json(&self) -> Result<String> {
        let figures = &self.findings.figures;
        let mut excused = BTreeMap::new();
        for violation in &self.findings.excused {
            *excused.entry(violation.property.as_str()).or_insert(0) += 1;
        }
        let json = Json {
            version: VERSION,
            passed: self.passed(),
            interrupted: self.interrupted,
            store: &self.start.store,
            versions: &self.start.versions,
            missing: &self.start.missing,
            seed: self.start.seed,
            clients: self.start.clients,
            workloads: &self.start.workloads,
            counts: &self.counts,
            faults: self.fault_count(),
            fault_kinds: &self.faults,
            violations: self.told().map(Told::of).collect(),
            violation_count: self.findings.violations.len(),
            excused,
            excused_seconds: millis(figures.excused) / 1000.0,
            grants_unexcused: figures.grants_unexcused,
            recovery_ms: Spread::of(&figures.recoveries),
            late_signal_ms: Spread::of(&figures.late_signals),
            unordered_beside: figures.unordered_beside,
            fenced: Updates {
                updates: figures.updates_fenced,
                lost: figures.lost_updates_fenced,
                refused: figures.refused_writes,
            },
            unfenced: Updates {
                updates: figures.updates_unfenced,
                lost: figures.lost_updates_unfenced,
                refused: 0,
            },
            calm: Calm {
                requests: figures.calm_requests,
                operations: figures.calm_operations,
            },
            problems: &self.problems,
        };
        serde_json::to_string(&json)
            .map_err(|why| Error::new(ErrorKind::Internal, format!("cannot write JSON: {why}")))
    }

    /// One page with pictures, that needs nothing but itself.
    pub(crate) fn write_page(&self, history: &History, file: &Path) -> Result<()> {
        let page = page::render(self, history);
        std::fs::write(file, page).map_err(|why| {
            Error::invalid(format!("cannot write the page {}: {why}", file.display()))
        })
    }

    /// The first violation as a picture by itself, if there is one.
    ///
    /// ```no_run
    /// let report = clinch_verify::replay("history.jsonl".as_ref(), None)?;
    /// let picture = report.picture("history.jsonl".as_ref())?;
    /// assert_eq!(picture.is_none(), report.passed());
    /// # Ok::<(), clinch::Error>(())
    /// ```
    pub fn picture(&self, history: &Path) -> Result<Option<String>> {
        let history = History::read([history])?;
        let first = self.findings.violations.first();
        let index = Index::new(&history);
        Ok(first.map(|violation| picture::of(&index, violation)))
    }

    fn fault_count(&self) -> u64 {
        self.faults.values().sum()
    }

    /// The violations that are told one by one: the first of each kind, then the first of all.
    fn told(&self) -> impl Iterator<Item = &Violation> {
        let mut seen = Vec::new();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for violation in &self.findings.violations {
            match seen.contains(&violation.property) {
                true => rest.push(violation),
                false => {
                    seen.push(violation.property);
                    first.push(violation);
                }
            }
        }
        first.into_iter().chain(rest).take(TOLD)
    }
}

impl<'a> Told<'a> {
    fn of(violation: &'a Violation) -> Self {
        Self {
            property: violation.property,
            lock: &violation.lock,
            message: &violation.message,
            operations: violation.ops.iter().map(|op| op_name(*op)).collect(),
        }
    }
}

impl Counts {
    fn of(history: &History) -> Self {
        let mut counts = Self {
            events: history.events.len(),
            ..Self::default()
        };
        let mut highest = 0;
        for event in &history.events {
            match event {
                Event::Acquire(acquire) => {
                    counts.operations += 1;
                    counts.grants += u64::from(acquire.outcome == Outcome::Ok);
                    counts.unknown += u64::from(acquire.outcome == Outcome::Info);
                    highest = highest.max(acquire.process);
                }
                Event::Release(_) => counts.operations += 1,
                Event::Lost(_) => counts.losses += 1,
                Event::Exit(exit) => counts.killed += u64::from(exit.killed),
                _ => {}
            }
        }
        counts.processes = u64::from(highest);
        let start = history.start().map_or(0, |start| start.at);
        let end = history
            .healed()
            .or(history.events.last().map(Event::at))
            .unwrap_or(start);
        counts.seconds = millis(end.saturating_sub(start)) / 1000.0;
        counts
    }
}

impl Spread {
    fn of(ascending: &[u64]) -> Self {
        let at = (ascending.len() * 99).div_ceil(100).saturating_sub(1);
        Self {
            count: ascending.len(),
            p99: ascending.get(at).copied().map_or(0.0, millis),
            max: ascending.last().copied().map_or(0.0, millis),
        }
    }
}

/// Nanoseconds as milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "for people, who read three digits"
)]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
