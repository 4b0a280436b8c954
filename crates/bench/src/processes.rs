//! One name, several processes.

use std::time::Duration;

use crate::cell::{ratio, to_f64};
use crate::child::{self, Outcome, Task};
use crate::hist::Spans;
use crate::lab::{Halt, Lab};
use crate::report::{ProcessesRow, Report};
use crate::worker::Turn;

/// How many processes there are.
const PROCESSES: usize = 4;
/// Tasks in each process of a crowd, and how long each is inside.
const CROWD: u32 = 16;
const SECTION: Duration = Duration::from_millis(1);

/// Measures one task in each of 4 processes, and a crowd of 64 tasks in 4 processes.
pub(crate) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if !lab.is_shared() {
        report.skip("processes", "no other process sees this store");
        return Ok(());
    }
    let span = lab.times.warm_up + lab.times.span;
    let name = lab.name("processes");
    lab.progress.say("one name, 4 processes");
    let few = Task::new(&name, PROCESSES, Duration::ZERO, span);
    let outcome = child::run(lab, few).await?;
    report.processes.push(row(lab, report, few, &outcome)?);
    // Long enough that each task has several turns.
    let span = lab.times.warm_up + lab.times.span * 2;
    for fair in [false, true] {
        if fair && !lab.has_queue() {
            continue;
        }
        let how = if fair { ", fair" } else { "" };
        lab.progress
            .say(&format!("one name, 64 tasks in 4 processes{how}"));
        let name = lab.name(&format!("crowd/{fair}"));
        let crowd = Task {
            tasks: CROWD,
            fair,
            ..Task::new(&name, PROCESSES, SECTION, span)
        };
        let outcome = child::run(lab, crowd).await?;
        report.processes.push(row(lab, report, crowd, &outcome)?);
    }
    Ok(())
}

fn row(
    lab: &Lab,
    report: &Report,
    task: Task<'_>,
    outcome: &Outcome,
) -> Result<ProcessesRow, Halt> {
    let from = outcome.from + lab.times.warm_up;
    let measured = from.as_nanos()..outcome.until.as_nanos();
    let mut waits = Spans::new()?;
    let mut sections = Vec::new();
    let mut counts = vec![0_u64; outcome.seen.len()];
    let all = outcome.in_order();
    for (process, turn) in &all {
        if measured.contains(&turn.entered) {
            waits.record(turn.waited());
            sections.push(turn.left.saturating_sub(turn.entered));
            if let Some(count) = counts.get_mut(*process) {
                *count += 1;
            }
        }
    }
    let rate = to_f64(waits.len()) / outcome.until.since(from).as_secs_f64();
    let most = counts.iter().max().copied().unwrap_or_default();
    let fewest = counts.iter().min().copied().unwrap_or_default();
    let operations = outcome.seen.iter().map(|seen| seen.operations).sum();
    let acquisitions = u64::try_from(all.len()).unwrap_or(u64::MAX);
    sections.sort_unstable();
    let section = sections
        .get(sections.len() / 2)
        .copied()
        .unwrap_or_default();
    Ok(ProcessesRow {
        processes: outcome.seen.len(),
        tasks: task.tasks,
        fair: task.fair,
        section_us: to_f64(section) / 1e3,
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

/// Counts the turns that began before the previous one ended, or without a greater token. The token 0 is that of
/// a store without tokens.
pub(crate) fn violations(turns: &[(usize, Turn)]) -> u64 {
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
