//! The least that a lock on this engine can cost.

use std::time::Duration;

use clinch::store::Floor;
use clinch::{Clock, Result};

use super::cell::Work;
use super::lab::Lab;

/// A worker with raw operations of its own.
pub(super) struct Raw {
    floor: Box<dyn Floor>,
    key: u64,
    clock: Clock,
}

impl Work for Raw {
    async fn step(&mut self) -> Result<Duration> {
        let from = self.clock.now();
        self.floor.pair(self.key).await?;
        Ok(self.clock.now().since(from))
    }
}

/// So many workers, each with raw operations of its own; `None` where the store has none.
pub(super) async fn workers(lab: &Lab, count: u64) -> Result<Option<Vec<Raw>>> {
    let mut workers = Vec::new();
    for key in 0..count {
        let Some(floor) = lab.clinch.store().floor().await? else {
            return Ok(None);
        };
        let clock = lab.clock.clone();
        workers.push(Raw { floor, key, clock });
    }
    Ok(Some(workers))
}
