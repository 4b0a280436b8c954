//! One name that several processes want.

use super::cell::{ratio, to_f64};
use super::child::{self, Outcome, Task};
use super::hist::Spans;
use super::lab::{Halt, Lab};
use super::report::{ProcessesRow, Report};
use super::worker::Turn;

/// How many processes want the name.
const PROCESSES: usize = 4;

/// Measures with one task in each of 4 processes.
pub(super) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if !lab.is_shared() {
        report.skip("processes", "no other process sees this store");
        return Ok(());
    }
    lab.progress.say("one name, 4 processes");
    let task = Task {
        name: &lab.name("processes"),
        processes: PROCESSES,
        hold: std::time::Duration::ZERO,
        span: lab.times.warm_up + lab.times.span,
        sample: false,
    };
    let outcome = child::run(lab, task).await?;
    report.processes = Some(row(lab, report, &outcome)?);
    Ok(())
}

fn row(lab: &Lab, report: &Report, outcome: &Outcome) -> Result<ProcessesRow, Halt> {
    let from = (outcome.from + lab.times.warm_up).as_nanos();
    let measured = from..outcome.until.as_nanos();
    let mut waits = Spans::new()?;
    let mut counts = vec![0_u64; outcome.seen.len()];
    let all = outcome.in_order();
    for (process, turn) in &all {
        if measured.contains(&turn.entered) {
            waits.record(turn.waited());
            if let Some(count) = counts.get_mut(*process) {
                *count += 1;
            }
        }
    }
    let rate = to_f64(waits.len()) / lab.times.span.as_secs_f64();
    let most = counts.iter().max().copied().unwrap_or_default();
    let fewest = counts.iter().min().copied().unwrap_or_default();
    let operations = outcome.seen.iter().map(|seen| seen.operations).sum();
    let acquisitions = u64::try_from(all.len()).unwrap_or(u64::MAX);
    Ok(ProcessesRow {
        processes: outcome.seen.len(),
        acquisitions_per_s: rate,
        wait: waits.percentiles(),
        fairness: ratio(to_f64(most), to_f64(fewest)),
        operations_per_acquisition: ratio(to_f64(operations), to_f64(acquisitions))
            .unwrap_or_default(),
        violations: violations(&all),
        ratio_to_uncontended: report
            .uncontended_rate(1)
            .and_then(|alone| ratio(rate, alone)),
    })
}

/// How often somebody was inside before the one before had left, or had no greater token; 0 is the
/// token of a store without them.
pub(super) fn violations(turns: &[(usize, Turn)]) -> u64 {
    let pairs = turns.iter().zip(turns.iter().skip(1));
    let old = |a: &Turn, b: &Turn| b.token != 0 && b.token <= a.token;
    let wrong = pairs.filter(|((_, a), (_, b))| b.entered < a.left || old(a, b));
    u64::try_from(wrong.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_and_old_tokens_are_violations() {
        let turn = |entered, left, token| {
            let turn = Turn {
                entered,
                left,
                token,
                ..Turn::default()
            };
            (0, turn)
        };
        assert_eq!(violations(&[]), 0);
        assert_eq!(violations(&[turn(1, 5, 1), turn(5, 9, 2)]), 0);
        assert_eq!(violations(&[turn(1, 5, 1), turn(4, 9, 2)]), 1);
        assert_eq!(violations(&[turn(1, 5, 2), turn(6, 9, 2)]), 1);
        assert_eq!(violations(&[turn(1, 5, 0), turn(6, 9, 0)]), 0);
    }
}
