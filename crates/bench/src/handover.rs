//! From release in one process to entry in another.

use std::time::Duration;

use crate::cell::{ratio, to_f64};
use crate::child::{self, Outcome, Task};
use crate::hist::{Percentiles, Spans};
use crate::lab::{Halt, Lab};
use crate::processes::violations;
use crate::report::{HandoverRow, Report};
use crate::worker::Turn;

/// Long enough that the other process waits before the end of it.
const HOLD: Duration = Duration::from_millis(3);
/// Long enough that polling shows in the number of operations.
const LONG_HOLD: Duration = Duration::from_millis(500);

/// Measures two processes that take turns, with short and with long waits.
pub(crate) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if !lab.is_shared() {
        report.skip("handover", "no other process sees this store");
        return Ok(());
    }
    lab.progress.say("hand-over between two processes");
    let span = lab.times.span * 2 + lab.times.warm_up;
    let name = lab.name("handover");
    let task = Task::new(&name, 2, HOLD, span);
    let short = child::run(lab, task).await?;
    let baton = token_passing(lab, task).await?;
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

/// The same with the engine's bare token, if it has one.
async fn token_passing(lab: &Lab, task: Task<'_>) -> Result<Option<Percentiles>, Halt> {
    let Some(engine) = lab.engine().await? else {
        return Ok(None);
    };
    let Some(mut token) = engine.token(task.name).await? else {
        return Ok(None);
    };
    lab.progress
        .say("the engine's bare token between two processes");
    token.pass().await?;
    let passing = Task {
        token: true,
        ..task
    };
    let outcome = child::run(lab, passing).await;
    token.remove().await?;
    let (spans, _) = spans(&outcome?)?;
    Ok(Some(spans.percentiles()))
}

/// The spans from each release to the entry of the other process, and the turns that began with such a wait.
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

/// The turns that began with a wait for the other process, each with the time of the release.
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
            // The same process took it again.
            turn(1, 21, 22, 30),
            // The claim came when the lock was free.
            turn(0, 40, 41, 50),
        ];
        let waits = handed_over(&turns);
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].0, waits[0].1.entered), (10, 12));
    }
}
