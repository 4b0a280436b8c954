//! The uncontended lock, beside the floor and the naive lock.
//!
//! They are measured in turn, several times, so that other load on the machine affects all of them
//! alike and the ratios stay valid.

use crate::args::{Args, Cell};
use crate::baseline_workers::{self, Kind, Raw};
use crate::cell::{self, Rounds, Work, ratio};
use crate::lab::{Halt, Lab};
use crate::report::{FloorRow, Report, UncontendedRow};
use crate::uncontended;

/// How many workers there are.
const WORKERS: [u64; 3] = [1, 8, 64];
/// How often they take turns.
const ROUNDS: u32 = 3;

/// Measures at 1, 8 and 64 workers.
pub(crate) async fn measure(args: &Args, lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    for count in WORKERS {
        let mut raw = Series::raw(args, lab, Kind::Floor, count).await?;
        let mut naive = Series::raw(args, lab, Kind::NaiveLock, count).await?;
        let mut alone = Series::new(
            "uncontended",
            args.wants(Cell::Uncontended)
                .then(|| uncontended::workers(lab, count)),
        );
        for _ in 0..ROUNDS {
            raw.round(lab, count).await?;
            naive.round(lab, count).await?;
            alone.round(lab, count).await?;
        }
        report.floor.extend(raw.row(count)?);
        report.classic.extend(naive.row(count)?);
        if !alone.rounds.is_empty() {
            let row = row(report, count, &alone.rounds, &raw.rounds, &naive.rounds)?;
            report.uncontended.push(row);
        }
    }
    if args.wants(Cell::Floor) && report.floor.is_empty() {
        report.skip("floor", "there is nothing below the lock on this store");
    }
    Ok(())
}

/// Workers of one kind, and what they have measured so far.
struct Series<W> {
    what: &'static str,
    workers: Option<Vec<W>>,
    rounds: Rounds,
}

impl<W: Work> Series<W> {
    fn new(what: &'static str, workers: Option<Vec<W>>) -> Self {
        Self {
            what,
            workers,
            rounds: Rounds::default(),
        }
    }

    async fn round(&mut self, lab: &Lab, count: u64) -> Result<(), Halt> {
        let Some(workers) = self.workers.take() else {
            return Ok(());
        };
        let what = self.what;
        lab.progress.say(&format!("{what}, {count} workers"));
        let (measured, workers) = cell::run(lab, lab.times.share(ROUNDS), workers).await?;
        self.rounds.push(measured);
        self.workers = Some(workers);
        Ok(())
    }
}

impl Series<Raw> {
    async fn raw(args: &Args, lab: &Lab, kind: Kind, count: u64) -> Result<Self, Halt> {
        let what = match kind {
            Kind::Floor => "the floor",
            Kind::NaiveLock => "the usual lock",
        };
        let workers = match args.wants(Cell::Floor) {
            true => baseline_workers::workers(lab, kind, count).await?,
            false => None,
        };
        Ok(Self::new(what, workers))
    }

    fn row(&self, workers: u64) -> Result<Option<FloorRow>, Halt> {
        if self.rounds.is_empty() {
            return Ok(None);
        }
        Ok(Some(FloorRow {
            workers,
            pairs_per_s: self.rounds.rate(),
            latency: self.rounds.percentiles()?,
            failed: self.workers.iter().flatten().map(|raw| raw.failed).sum(),
        }))
    }
}

fn row(
    report: &Report,
    workers: u64,
    lock: &Rounds,
    floor: &Rounds,
    naive: &Rounds,
) -> Result<UncontendedRow, Halt> {
    let rate = lock.rate();
    Ok(UncontendedRow {
        workers,
        pairs_per_s: rate,
        latency: lock.percentiles()?,
        operations_per_acquisition: lock.operations(),
        ratio_to_floor: ratio(rate, floor.rate()),
        ratio_to_classic: ratio(rate, naive.rate()),
        ratio_to_one_worker: ratio(rate, report.uncontended_rate(1).unwrap_or(rate)),
    })
}
