//! From release in one process to entry in another.

use std::time::Duration;

use super::cell::{ratio, to_f64};
use super::child::{self, Outcome, Task};
use super::hist::{Percentiles, Spans};
use super::lab::{Halt, Lab};
use super::processes::violations;
use super::report::{HandoverRow, Report};
use super::worker::Turn;

/// Long enough inside that the other process surely waits.
const HOLD: Duration = Duration::from_millis(3);
/// So long inside that a process that polls would be seen to.
const LONG_HOLD: Duration = Duration::from_millis(500);

/// Measures two processes that take turns, with short and with long waits.
pub(super) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if !lab.is_shared() {
        report.skip("handover", "no other process sees this store");
        return Ok(());
    }
    lab.progress.say("hand-over between two processes");
    let span = lab.times.span * 2 + lab.times.warm_up;
    let name = lab.name("handover");
    let task = Task::new(&name, 2, HOLD, span);
    let short = child::run(lab, task).await?;
    let baton = bare(lab, task).await?;
    lab.progress.say("a long wait of one process for another");
    let long = child::run(
        lab,
        Task {
            hold: LONG_HOLD,
            span: if lab.quick { LONG_HOLD } else { LONG_HOLD * 4 },
            sample: true,
            ..task
        },
    )
    .await?;
    report.handover = Some(row(&short, &long, baton)?);
    Ok(())
}

/// The same with the engine's bare token, where it has one.
async fn bare(lab: &Lab, task: Task<'_>) -> Result<Option<Percentiles>, Halt> {
    let Some(mut baton) = lab.clinch.store().baton(task.name).await? else {
        return Ok(None);
    };
    lab.progress
        .say("the engine's bare token between two processes");
    baton.pass().await?;
    let bare = Task {
        baton: true,
        ..task
    };
    let outcome = child::run(lab, bare).await;
    baton.remove().await?;
    let (spans, _) = spans(&outcome?)?;
    Ok(Some(spans.percentiles()))
}

/// From each release to the entry of the other process, and the turns that began so.
fn spans(outcome: &Outcome) -> Result<(Spans, Vec<(u64, Turn)>), Halt> {
    let mut spans = Spans::new()?;
    let waits = handed_over(&outcome.in_order());
    for (left, turn) in &waits {
        spans.record(Duration::from_nanos(turn.entered.saturating_sub(*left)));
    }
    Ok((spans, waits))
}

fn row(short: &Outcome, long: &Outcome, baton: Option<Percentiles>) -> Result<HandoverRow, Halt> {
    let (spans, waits) = spans(short)?;
    let turns = short.in_order();
    let latency = spans.percentiles();
    let long_turns = long.in_order();
    let long_waits = handed_over(&long_turns);
    Ok(HandoverRow {
        handovers: spans.len(),
        latency,
        baton,
        ratio_to_baton: baton.and_then(|bare| ratio(latency.p50_us, bare.p50_us)),
        operations_per_wait: mean(&waits, |turn| turn.operations),
        long_wait_ms: mean(&long_waits, |turn| turn.entered - turn.asked) / 1e6,
        long_wait_operations: mean(&long_waits, |turn| turn.operations),
        long_wait_wakeups: mean(&long_waits, |turn| turn.switches),
        long_wait_cpu_us: mean(&long_waits, |turn| turn.cpu) / 1e3,
        violations: violations(&turns) + violations(&long_turns),
    })
}

/// The turns that began with a wait for the other process, each with the moment of the release.
fn handed_over(turns: &[(usize, Turn)]) -> Vec<(u64, Turn)> {
    let pairs = turns.iter().zip(turns.iter().skip(1));
    pairs
        .filter(|((from, a), (to, b))| from != to && b.asked < a.left)
        .map(|((_, a), (_, b))| (a.left, *b))
        .collect()
}

fn mean(waits: &[(u64, Turn)], of: impl Fn(&Turn) -> u64) -> f64 {
    let sum: u64 = waits.iter().map(|(_, turn)| of(turn)).sum();
    let count = u64::try_from(waits.len()).unwrap_or(u64::MAX);
    ratio(to_f64(sum), to_f64(count)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_for_the_other_process_count() {
        let turn = |process, asked, entered, left| {
            let turn = Turn {
                asked,
                entered,
                left,
                ..Turn::default()
            };
            (process, turn)
        };
        let turns = [
            turn(0, 0, 1, 10),
            turn(1, 2, 12, 20),
            // It took it again itself.
            turn(1, 21, 22, 30),
            // It came when it was free.
            turn(0, 40, 41, 50),
        ];
        let waits = handed_over(&turns);
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].0, waits[0].1.entered), (10, 12));
    }
}
