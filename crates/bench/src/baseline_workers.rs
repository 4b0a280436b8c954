//! Workers that run a baseline.

use std::time::Duration;

use clinch::{Clock, Result};

use crate::baseline::Baseline;
use crate::cell::Work;
use crate::lab::Lab;

/// Which baseline is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The fewest raw operations that a lock needs.
    Floor,
    /// The lock that applications commonly write. It may deadlock or stall, so a failure is counted and the
    /// worker continues.
    NaiveLock,
}

/// A worker with a key of its own.
pub(crate) struct Raw {
    kind: Kind,
    baseline: Box<dyn Baseline>,
    key: u64,
    clock: Clock,
    /// Pairs that failed.
    pub(crate) failed: u64,
}

impl Work for Raw {
    async fn step(&mut self) -> Result<Option<Duration>> {
        let from = self.clock.now();
        match self.baseline.pair(self.key).await {
            Ok(()) => Ok(Some(self.clock.now().since(from))),
            Err(_) if self.kind == Kind::NaiveLock => {
                self.failed += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// `count` workers, each with a baseline of its own; `None` if the store has no such baseline.
pub(crate) async fn workers(lab: &Lab, kind: Kind, count: u64) -> Result<Option<Vec<Raw>>> {
    let Some(engine) = lab.engine().await? else {
        return Ok(None);
    };
    let mut workers = Vec::new();
    for key in 0..count {
        let baseline = match kind {
            Kind::Floor => Some(engine.floor().await?),
            Kind::NaiveLock => engine.naive_lock().await?,
        };
        let Some(baseline) = baseline else {
            return Ok(None);
        };
        workers.push(Raw {
            kind,
            baseline,
            key,
            clock: lab.clock.clone(),
            failed: 0,
        });
    }
    Ok(Some(workers))
}
