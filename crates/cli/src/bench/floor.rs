//! The least that a lock on this engine can cost.

use std::time::Duration;

use clinch::store::Floor;
use clinch::{Clock, Result};

use super::cell::{self, Work};
use super::lab::{Halt, Lab};
use super::report::{FloorRow, Report};

/// A worker with raw operations of its own.
struct Raw {
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

/// Measures at 1, 8 and 64 workers.
pub(super) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    for workers in super::WORKERS {
        lab.progress.say(&format!("the floor, {workers} workers"));
        let mut raw = Vec::new();
        for key in 0..workers {
            let Some(floor) = lab.clinch.store().floor().await? else {
                report.skip("floor", "there is nothing below the lock on this store");
                return Ok(());
            };
            let clock = lab.clock.clone();
            raw.push(Raw { floor, key, clock });
        }
        let measured = cell::run(lab, raw).await?;
        report.floor.push(FloorRow {
            workers,
            pairs_per_s: measured.rate,
            latency: measured.spans.percentiles(),
        });
    }
    Ok(())
}
