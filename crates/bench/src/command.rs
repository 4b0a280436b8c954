//! `clinch run NAME -- true` beside `flock FILE true`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clinch::Result;

use crate::cell::ratio;
use crate::lab::{Halt, Lab};
use crate::report::{CommandRow, Report};

/// Measures both in turn, so that other load on the machine affects both alike.
pub(crate) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if !lab.is_shared() {
        report.skip("command", "no other process sees this store");
        return Ok(());
    }
    lab.progress.say("clinch run beside flock");
    let runs = if lab.quick { 3 } else { 50 };
    let file = std::env::temp_dir().join(format!("clinch-bench-{}", std::process::id()));
    let program = std::env::current_exe()
        .map_err(|error| crate::internal(format!("cannot find this program: {error}")))?;
    let outcome = alternate(lab, runs, &program, &file);
    let _ = std::fs::remove_file(&file);
    match outcome? {
        Ok(row) => report.command = Some(row),
        Err(reason) => report.skip("command", reason),
    }
    Ok(())
}

fn alternate(
    lab: &Lab,
    runs: u32,
    program: &Path,
    file: &Path,
) -> Result<Result<CommandRow, &'static str>, Halt> {
    let name = lab.name("command");
    let mut ours = Command::new(program);
    ours.args(["run", &name, "--", "true"]);
    lab.set_store(&mut ours);
    let mut theirs = Command::new("flock");
    theirs.arg(file).arg("true");
    let (mut run_times, mut flock_times) = (Vec::new(), Vec::new());
    // The first round warms the caches up.
    for round in 0..=runs {
        if lab.stop.is_set() {
            return Err(Halt::Stopped);
        }
        let Some(flock) = time(lab, &mut theirs) else {
            return Ok(Err("there is no flock command here"));
        };
        let Some(run) = time(lab, &mut ours) else {
            return Ok(Err("clinch run failed"));
        };
        if round > 0 {
            run_times.push(run);
            flock_times.push(flock);
        }
    }
    let (run, flock) = (median(run_times), median(flock_times));
    Ok(Ok(CommandRow {
        runs,
        run_ms: run.as_secs_f64() * 1e3,
        flock_ms: flock.as_secs_f64() * 1e3,
        ratio_to_flock: ratio(run.as_secs_f64(), flock.as_secs_f64()),
    }))
}

/// How long a command takes; `None` if it fails.
fn time(lab: &Lab, command: &mut Command) -> Option<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let from = lab.clock.now();
    let status = command.status().ok()?;
    let time = lab.clock.now().since(from);
    status.success().then_some(time)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
