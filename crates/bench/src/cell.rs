//! One cell: workers that repeat the same step for a time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use clinch::Result;
use tokio::task::JoinSet;

use crate::hist::{Percentiles, Spans};
use crate::lab::{Halt, Lab};

/// Upper bound on the steps of one worker.
const MOST: u64 = 1_000_000_000;
/// How long workers may take to end after the cell.
const PATIENCE: Duration = Duration::from_secs(30);

/// The step that one worker of a cell repeats.
pub(crate) trait Work: Send + 'static {
    /// Runs one step; returns the span to record, or `None` if the step failed.
    fn step(&mut self) -> impl Future<Output = Result<Option<Duration>>> + Send;
}

/// What the workers of a cell recorded.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Steps per second.
    pub(crate) rate: f64,
    pub(crate) spans: Spans,
    /// Measured steps of each worker.
    pub(crate) counts: Vec<u64>,
    /// Operations at the engine per step, with the warm-up.
    pub(crate) operations: f64,
}

impl Measured {
    /// Most steps of a worker divided by the fewest; `None` if a worker had none.
    pub(crate) fn fairness(&self) -> Option<f64> {
        let most = self.counts.iter().max().copied().unwrap_or_default();
        let fewest = self.counts.iter().min().copied().unwrap_or_default();
        ratio(to_f64(most), to_f64(fewest))
    }
}

/// Several rounds of one cell.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<Measured>);

impl Rounds {
    pub(crate) fn push(&mut self, round: Measured) {
        self.0.push(round);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The median rate: a disturbance of one round does not show in it.
    pub(crate) fn rate(&self) -> f64 {
        let mut rates: Vec<f64> = self.0.iter().map(|round| round.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    }

    /// Mean operations per step.
    pub(crate) fn operations(&self) -> f64 {
        let sum: f64 = self.0.iter().map(|round| round.operations).sum();
        let rounds = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        ratio(sum, to_f64(rounds)).unwrap_or_default()
    }

    /// Percentiles of all rounds together, so a disturbance of one round shows.
    pub(crate) fn percentiles(&self) -> Result<Percentiles> {
        let mut spans = Spans::new()?;
        for round in &self.0 {
            spans.add(&round.spans)?;
        }
        Ok(spans.percentiles())
    }
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// How long a cell runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Before it is measured.
    pub(crate) warm_up: Duration,
    /// While it is measured.
    pub(crate) span: Duration,
}

impl Times {
    /// For one of several rounds.
    pub(crate) fn share(self, rounds: u32) -> Self {
        Self {
            warm_up: self.warm_up / rounds,
            span: self.span / rounds,
        }
    }
}

/// Ends the workers, also when the cell is dropped early.
struct Phase(Arc<AtomicU8>);

impl Drop for Phase {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Release);
    }
}

/// What one worker recorded.
struct Seen<W> {
    worker: W,
    spans: Spans,
    /// All steps, with the warm-up.
    steps: u64,
}

/// Runs the workers through a warm-up and the measured time, and returns them.
pub(crate) async fn run<W: Work>(
    lab: &Lab,
    times: Times,
    workers: Vec<W>,
) -> Result<(Measured, Vec<W>), Halt> {
    let phase = Phase(Arc::new(AtomicU8::new(WARM_UP)));
    let client = &lab.clinch;
    let operations = client.operations();
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker, phase.0.clone()));
    }
    lab.pause(times.warm_up).await?;
    let from = lab.clock.now();
    phase.0.store(MEASURED, Ordering::Release);
    let outcome = lab.pause(times.span).await;
    phase.0.store(OVER, Ordering::Release);
    let time = lab.clock.now().since(from);
    // Also after a signal: the workers release what they hold before they end.
    let seen = join(lab, tasks).await?;
    outcome?;
    let mut spans = Spans::new()?;
    for one in &seen {
        spans.add(&one.spans)?;
    }
    let operations = to_f64(client.operations() - operations);
    let steps = to_f64(seen.iter().map(|one| one.steps).sum());
    let measured = Measured {
        rate: to_f64(spans.len()) / time.as_secs_f64().max(1e-9),
        counts: seen.iter().map(|one| one.spans.len()).collect(),
        spans,
        operations: ratio(operations, steps).unwrap_or_default(),
    };
    Ok((measured, seen.into_iter().map(|one| one.worker).collect()))
}

async fn join<W: Work>(
    lab: &Lab,
    mut tasks: JoinSet<Result<Seen<W>>>,
) -> Result<Vec<Seen<W>>, Halt> {
    let mut seen = Vec::with_capacity(tasks.len());
    let patience = lab.clock.sleep(PATIENCE);
    let mut patience = std::pin::pin!(patience);
    loop {
        let joined = tokio::select! {
            joined = tasks.join_next() => joined,
            () = &mut patience => return Err(crate::internal("a worker did not end in time").into()),
        };
        match joined {
            None => return Ok(seen),
            Some(Ok(one)) => seen.push(one?),
            Some(Err(error)) => {
                return Err(crate::internal(format!("a worker failed: {error}")).into());
            }
        }
    }
}

async fn work<W: Work>(mut worker: W, phase: Arc<AtomicU8>) -> Result<Seen<W>> {
    let mut spans = Spans::new()?;
    let mut steps = 0;
    while steps < MOST {
        let span = worker.step().await?;
        steps += 1;
        match (phase.load(Ordering::Acquire), span) {
            (MEASURED, Some(span)) => spans.record(span),
            (WARM_UP | MEASURED, _) => {}
            _ => break,
        }
        // A store that always replies at once must not starve the other workers.
        tokio::task::coop::consume_budget().await;
    }
    Ok(Seen {
        worker,
        spans,
        steps,
    })
}

/// `a / b`; `None` if `b` is 0.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// A count as a number to divide.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are all that counts"
)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}
