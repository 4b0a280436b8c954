//! The lock that nobody else wants, beside the least that it can cost.
//!
//! Both are measured in turn, several times, so that whatever else the machine does meets both
//! alike and their ratio stands.

use super::args::{Args, Cell};
use super::cell::{self, Rounds, ratio};
use super::lab::{Halt, Lab};
use super::report::{FloorRow, Report, UncontendedRow};
use super::{floor, uncontended};

/// How many workers there are.
const WORKERS: [u64; 3] = [1, 8, 64];
/// How often the two take turns.
const ROUNDS: u32 = 3;

/// Measures at 1, 8 and 64 workers.
pub(super) async fn measure(args: &Args, lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    for count in WORKERS {
        let mut raw = match args.wants(Cell::Floor) {
            true => floor::workers(lab, count).await?,
            false => None,
        };
        let mut alone = args
            .wants(Cell::Uncontended)
            .then(|| uncontended::workers(lab, count));
        let times = lab.times.share(ROUNDS);
        let (mut floor, mut lock) = (Rounds::default(), Rounds::default());
        for _ in 0..ROUNDS {
            if let Some(workers) = raw.take() {
                lab.progress.say(&format!("the floor, {count} workers"));
                let (measured, workers) = cell::run(lab, times, workers).await?;
                floor.push(measured);
                raw = Some(workers);
            }
            if let Some(workers) = alone.take() {
                lab.progress.say(&format!("uncontended, {count} workers"));
                let (measured, workers) = cell::run(lab, times, workers).await?;
                lock.push(measured);
                alone = Some(workers);
            }
        }
        rows(report, count, &floor, &lock)?;
    }
    if args.wants(Cell::Floor) && report.floor.is_empty() {
        report.skip("floor", "there is nothing below the lock on this store");
    }
    Ok(())
}

fn rows(report: &mut Report, workers: u64, floor: &Rounds, lock: &Rounds) -> Result<(), Halt> {
    if !floor.is_empty() {
        report.floor.push(FloorRow {
            workers,
            pairs_per_s: floor.rate(),
            latency: floor.percentiles()?,
        });
    }
    if !lock.is_empty() {
        let rate = lock.rate();
        let one = report.uncontended_rate(1).unwrap_or(rate);
        report.uncontended.push(UncontendedRow {
            workers,
            pairs_per_s: rate,
            latency: lock.percentiles()?,
            operations_per_acquisition: lock.operations(),
            ratio_to_floor: ratio(rate, floor.rate()),
            ratio_to_one_worker: ratio(rate, one),
        });
    }
    Ok(())
}
