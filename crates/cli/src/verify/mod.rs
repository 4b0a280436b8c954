//! `clinch verify`: the command line of `clinch-verify`.

mod args;
mod progress;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use args::Args;
use clinch::{Error, ErrorKind, Result};
use clinch_verify::{Options, Report, Target, replay, run};
use progress::Line;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Runs, or checks a history, and gives the report.
pub(crate) fn report(
    args: &Args,
    url: Option<&str>,
    namespace: &str,
    quiet: bool,
) -> Result<Report> {
    if let Some(history) = &args.replay {
        let report = replay(history, args.report.as_ref())?;
        draw(args, &report, history)?;
        return Ok(report);
    }
    let target = match (args.lab, args.wrong) {
        (Some(lab), _) => Target::Lab(lab),
        (None, Some(wrong)) => Target::Wrong(wrong),
        (None, None) => Target::Store(url.unwrap_or("sqlite:").to_owned()),
    };
    let program = std::env::current_exe().map_err(|why| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot find this program: {why}"),
        )
    })?;
    let options = Options {
        target,
        namespace: namespace.to_owned(),
        span: args.span(),
        clients: usize::from(args.clients),
        workloads: args.workload.clone(),
        seed: args.seed.unwrap_or_else(seed),
        lease: args.lease,
        worker: vec![program.into(), "verify-worker".into()],
        history: args.history.clone(),
        page: args.report.clone(),
    };
    let stop = stop_on_signals()?;
    let line = Line::new(quiet, options.seed);
    let outcome = run(&options, &stop, &mut |now| line.say(now));
    line.clear();
    let report = outcome?;
    if let Some(history) = &args.history {
        draw(args, &report, history)?;
    }
    Ok(report)
}

fn draw(args: &Args, report: &Report, history: &std::path::Path) -> Result<()> {
    let Some(file) = &args.picture else {
        return Ok(());
    };
    match report.picture(history)? {
        Some(picture) => std::fs::write(file, picture)
            .map_err(|why| Error::invalid(format!("cannot write {}: {why}", file.display()))),
        None => Ok(()),
    }
}

/// A short seed, which people can type.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) % 1_000_000
}

/// A flag that INT, TERM and HUP set; the second signal ends the process at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |why| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot listen to signals: {why}"),
        )
    };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset, and sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .map_err(failed)?;
        signal_hook::flag::register(signal, stop.clone()).map_err(failed)?;
    }
    Ok(stop)
}
