//! From release in one process to entry in another.

use std::time::Duration;

use super::cell::{ratio, to_f64};
use super::child::{self, Outcome, Task};
use super::hist::Spans;
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
    let task = Task {
        name: &lab.name("handover"),
        processes: 2,
        hold: HOLD,
        span: lab.times.span * 2 + lab.times.warm_up,
        sample: false,
    };
    let short = child::run(lab, task).await?;
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
    report.handover = Some(row(&short, &long)?);
    Ok(())
}

fn row(short: &Outcome, long: &Outcome) -> Result<HandoverRow, Halt> {
    let mut spans = Spans::new()?;
    let turns = short.in_order();
    let waits = handed_over(&turns);
    for (left, turn) in &waits {
        spans.record(Duration::from_nanos(turn.entered.saturating_sub(*left)));
    }
    let long_turns = long.in_order();
    let long_waits = handed_over(&long_turns);
    Ok(HandoverRow {
        handovers: spans.len(),
        latency: spans.percentiles(),
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
