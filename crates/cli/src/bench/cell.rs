//! One measured cell: workers that do the same for a time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use clinch::Result;
use tokio::task::JoinSet;

use super::hist::Spans;
use super::lab::{Halt, Lab};

/// The most steps of one worker: nothing runs for ever.
const MOST: u64 = 1_000_000_000;
/// How long workers may take to end after they were told to.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one worker of a cell does again and again.
pub(super) trait Work: Send + 'static {
    /// One step; gives the span that counts.
    fn step(&mut self) -> impl Future<Output = Result<Duration>> + Send;
}

/// What the workers of a cell saw.
#[derive(Debug)]
pub(super) struct Measured {
    /// Steps per second.
    pub(super) rate: f64,
    pub(super) spans: Spans,
    /// Steps of each worker while it was measured.
    pub(super) counts: Vec<u64>,
    /// Operations at the engine for each step, over the whole run with its warm-up.
    pub(super) operations: f64,
}

impl Measured {
    /// Most steps of a worker by the fewest; `None` when one came never to its turn.
    pub(super) fn fairness(&self) -> Option<f64> {
        let most = self.counts.iter().max().copied().unwrap_or_default();
        let fewest = self.counts.iter().min().copied().unwrap_or_default();
        ratio(to_f64(most), to_f64(fewest))
    }
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// Tells the workers that it is over, also when the cell is dropped half-way.
struct Phase(Arc<AtomicU8>);

impl Drop for Phase {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Release);
    }
}

/// What one worker saw.
struct Seen {
    spans: Spans,
    /// All steps, with those of the warm-up.
    steps: u64,
}

/// Runs the workers through a warm-up and the measured time.
pub(super) async fn run<W: Work>(lab: &Lab, workers: Vec<W>) -> Result<Measured, Halt> {
    let phase = Phase(Arc::new(AtomicU8::new(WARM_UP)));
    let store = lab.clinch.store();
    let operations = store.operations();
    let mut tasks = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker, phase.0.clone()));
    }
    lab.pause(lab.warm_up).await?;
    let from = lab.clock.now();
    phase.0.store(MEASURED, Ordering::Release);
    let outcome = lab.pause(lab.span).await;
    phase.0.store(OVER, Ordering::Release);
    let time = lab.clock.now().since(from);
    // Also after a signal: the workers release what they hold before they end.
    let seen = join(lab, tasks).await?;
    outcome?;
    let mut spans = Spans::new()?;
    for one in &seen {
        spans.add(&one.spans)?;
    }
    let operations = to_f64(store.operations() - operations);
    let steps = to_f64(seen.iter().map(|one| one.steps).sum());
    Ok(Measured {
        rate: to_f64(spans.len()) / time.as_secs_f64().max(1e-9),
        counts: seen.iter().map(|one| one.spans.len()).collect(),
        spans,
        operations: ratio(operations, steps).unwrap_or_default(),
    })
}

async fn join(lab: &Lab, mut tasks: JoinSet<Result<Seen>>) -> Result<Vec<Seen>, Halt> {
    let mut seen = Vec::with_capacity(tasks.len());
    let patience = lab.clock.sleep(PATIENCE);
    let mut patience = std::pin::pin!(patience);
    loop {
        let joined = tokio::select! {
            joined = tasks.join_next() => joined,
            () = &mut patience => return Err(super::internal("a worker did not end in time").into()),
        };
        match joined {
            None => return Ok(seen),
            Some(Ok(one)) => seen.push(one?),
            Some(Err(error)) => {
                return Err(super::internal(format!("a worker failed: {error}")).into());
            }
        }
    }
}

async fn work(mut worker: impl Work, phase: Arc<AtomicU8>) -> Result<Seen> {
    let mut spans = Spans::new()?;
    let mut steps = 0;
    while steps < MOST {
        let span = worker.step().await?;
        steps += 1;
        match phase.load(Ordering::Acquire) {
            WARM_UP => {}
            MEASURED => spans.record(span),
            _ => break,
        }
        // A store that always answers at once must not starve the other workers.
        tokio::task::coop::consume_budget().await;
    }
    Ok(Seen { spans, steps })
}

/// `a` by `b`, where there is a `b`.
pub(super) fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// A count as a number to divide by.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are all that counts"
)]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}
