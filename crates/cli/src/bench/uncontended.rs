//! A lock that nobody else wants.

use std::time::Duration;

use clinch::{Clock, Lock, Result};

use super::cell::{self, Work, ratio};
use super::lab::{Halt, Lab};
use super::report::{Report, UncontendedRow};

/// A worker with a name of its own.
struct Alone {
    lock: Lock,
    clock: Clock,
}

impl Work for Alone {
    async fn step(&mut self) -> Result<Duration> {
        let from = self.clock.now();
        let guard = self.lock.acquire().await?;
        guard.release().await?;
        Ok(self.clock.now().since(from))
    }
}

/// Measures at 1, 8 and 64 workers.
pub(super) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    for workers in super::WORKERS {
        lab.progress.say(&format!("uncontended, {workers} workers"));
        let alone = (0..workers).map(|number| Alone {
            lock: lab.clinch.lock(lab.name(&format!("alone/{number}"))),
            clock: lab.clock.clone(),
        });
        let measured = cell::run(lab, alone.collect()).await?;
        let rate = measured.rate;
        let floor = report.floor.iter().find(|row| row.workers == workers);
        let one = report.uncontended_rate(1);
        report.uncontended.push(UncontendedRow {
            workers,
            pairs_per_s: rate,
            latency: measured.spans.percentiles(),
            operations_per_acquisition: measured.operations,
            ratio_to_floor: floor.and_then(|floor| ratio(rate, floor.pairs_per_s)),
            ratio_to_one_worker: ratio(rate, one.unwrap_or(rate)),
        });
    }
    Ok(())
}
