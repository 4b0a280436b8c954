//! One name, tasks of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch::{Clock, Lock, Result};

use crate::cell::{self, Work, ratio};
use crate::lab::{Halt, Lab};
use crate::report::{ContendedRow, Report};

/// How many tasks there are.
const TASKS: [u64; 3] = [2, 8, 64];

/// The data that the lock protects: plain loads and stores, which only the lock orders.
#[derive(Debug, Default)]
struct Cell {
    /// The task inside; 0 if none is.
    holder: AtomicU64,
    /// The token of the last task that entered; 0 on a store without tokens.
    token: AtomicU64,
    violations: AtomicU64,
}

impl Cell {
    fn enter(&self, me: u64, token: u64) {
        let inside = self.holder.load(Ordering::Relaxed);
        let last = self.token.load(Ordering::Relaxed);
        self.holder.store(me, Ordering::Relaxed);
        self.token.store(token, Ordering::Relaxed);
        if inside != 0 || (token != 0 && token <= last) {
            self.violated();
        }
    }

    fn leave(&self, me: u64, token: u64) {
        let inside = self.holder.load(Ordering::Relaxed);
        let last = self.token.load(Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        if inside != me || token != last {
            self.violated();
        }
    }

    fn violated(&self) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }
}

/// One task.
struct Rival {
    me: u64,
    lock: Lock,
    cell: Arc<Cell>,
    clock: Clock,
    tokens: bool,
}

impl Work for Rival {
    async fn step(&mut self) -> Result<Option<Duration>> {
        let from = self.clock.now();
        let guard = self.lock.acquire().await?;
        let waited = self.clock.now().since(from);
        let token = if self.tokens { guard.token().get() } else { 0 };
        self.cell.enter(self.me, token);
        self.cell.leave(self.me, token);
        guard.release().await?;
        Ok(Some(waited))
    }
}

/// Measures with hand-over inside the process, and `fair`, at 2, 8 and 64 tasks.
pub(crate) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    for fair in [false, true] {
        if fair && !lab.has_queue() {
            report.skip("contended, fair", "this store has no queue");
            return Ok(());
        }
        for tasks in TASKS {
            let how = if fair { ", fair" } else { "" };
            lab.progress.say(&format!("one name, {tasks} tasks{how}"));
            one(lab, report, tasks, fair).await?;
        }
    }
    Ok(())
}

async fn one(lab: &Lab, report: &mut Report, tasks: u64, fair: bool) -> Result<(), Halt> {
    let lock = lab.clinch.lock(lab.name(&format!("one/{tasks}/{fair}")));
    let lock = if fair { lock.fair() } else { lock };
    let cell = Arc::new(Cell::default());
    let rivals = (1..=tasks).map(|me| Rival {
        me,
        lock: lock.clone(),
        cell: cell.clone(),
        clock: lab.clock.clone(),
        tokens: lab.clinch.info().capabilities.tokens,
    });
    let (measured, _) = cell::run(lab, lab.times, rivals.collect()).await?;
    let uncontended = report.uncontended_rate(1);
    report.contended.push(ContendedRow {
        tasks,
        fair,
        acquisitions_per_s: measured.rate,
        wait: measured.spans.percentiles(),
        fairness: measured.fairness(),
        operations_per_acquisition: measured.operations,
        violations: cell.violations.load(Ordering::Relaxed),
        ratio_to_uncontended: uncontended.and_then(|rate| ratio(measured.rate, rate)),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_inside_are_a_violation() {
        let cell = Cell::default();
        cell.enter(1, 1);
        cell.leave(1, 1);
        assert_eq!(cell.violations.load(Ordering::Relaxed), 0);
        cell.enter(1, 2);
        cell.enter(2, 3);
        cell.leave(1, 2);
        assert_eq!(cell.violations.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_token_that_does_not_rise_is_a_violation() {
        let cell = Cell::default();
        for me in [1, 2] {
            cell.enter(me, 5);
            cell.leave(me, 5);
        }
        assert_eq!(cell.violations.load(Ordering::Relaxed), 1);
    }
}
