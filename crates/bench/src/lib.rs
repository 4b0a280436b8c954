//! Measures a clinch store beside the least that its engine could cost: the library behind `clinch bench`.
//!
//! One run measures the raw engine and the lock on the same store, so that ratios mean something on any
//! machine. Cells run one after the other, each with a warm-up:
//!
//! - `cell`: runs workers for a time and collects what they measured; `hist`: percentiles.
//! - [`baseline`]: each engine without clinch; `baseline_workers`: workers that run it.
//! - `pairs`: the baselines and `uncontended` in turn; `contended`: one name, tasks of this process.
//! - `processes`, `handover`: other processes; `child` starts and controls them, and
//!   `worker` is what runs in them.
//! - `renewal`: the cost of holding; `command`: `clinch run` beside `flock`.
//! - `report`: the figures (and the fields of `--json`); `aims`, `table`: for people.
//!
//! Every name has a random prefix, and nothing of it stays in the store.

mod aims;
mod args;
pub mod baseline;
mod baseline_workers;
mod cell;
mod child;
mod command;
mod contended;
mod handover;
mod hist;
mod lab;
mod pairs;
mod processes;
mod progress;
mod renewal;
mod report;
mod stop;
mod table;
mod uncontended;
mod usage;
mod worker;

use std::io::Write as _;

pub use args::{Args, Cell};
use baseline::Engine;
use clinch::{ClientId, Clinch, Connect, Error, ErrorKind, Result};
use lab::{Halt, Lab};
use report::Report;
use stop::Stop;
pub use worker::{Args as WorkerArgs, run as work};

/// Measures the store at `url` (the default store without one), prints the figures, and returns the exit
/// status.
///
/// It starts this same executable again as `bench-worker` with the options of [`WorkerArgs`], and the store in
/// `CLINCH_STORE` and `CLINCH_NAMESPACE`; that command must call [`work`].
pub fn run(args: &Args, url: Option<&str>, namespace: &str, json: bool) -> Result<i32> {
    let stop = Stop::on_signals()?;
    let runtime = runtime()?;
    let (report, failed) = runtime.block_on(measure(args, url, namespace, &stop))?;
    let text = match json {
        true => serde_json::to_string(&report)
            .map_err(|error| internal(format!("cannot write JSON: {error}")))?,
        false => table::render(&report),
    };
    // Ignored: a reader that is gone does not need the figures.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    match failed {
        Some(error) => Err(error),
        None => Ok(stop.status()),
    }
}

/// Runs the cells in turn. The report has what was measured before a failure or a signal.
async fn measure(
    args: &Args,
    url: Option<&str>,
    namespace: &str,
    stop: &Stop,
) -> Result<(Report, Option<Error>)> {
    let clinch = connect(url, namespace).await?;
    let lab = Lab::new(args, clinch.clone(), url, namespace, stop.clone());
    let mut report = Report::new(args, &clinch);
    let outcome = cells(args, &lab, &mut report).await;
    lab.progress.clear();
    report.left_behind = lab.left_behind().await;
    report.aims = aims::of(&report);
    lab.close().await?;
    clinch.close().await?;
    match outcome {
        Ok(()) => Ok((report, None)),
        Err(Halt::Stopped) => {
            report.interrupted = true;
            Ok((report, None))
        }
        Err(Halt::Failed(error)) => Ok((report, Some(error))),
    }
}

async fn cells(args: &Args, lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    if args.wants(Cell::Floor) || args.wants(Cell::Uncontended) {
        pairs::measure(args, lab, report).await?;
    }
    if args.wants(Cell::Contended) {
        contended::measure(lab, report).await?;
    }
    if args.wants(Cell::Processes) {
        processes::measure(lab, report).await?;
    }
    if args.wants(Cell::Handover) {
        handover::measure(lab, report).await?;
    }
    if args.wants(Cell::Command) {
        command::measure(lab, report).await?;
    }
    if args.wants(Cell::Renew) {
        renewal::measure(lab, report).await?;
    }
    Ok(())
}

async fn connect(url: Option<&str>, namespace: &str) -> Result<Clinch> {
    let connect = match url {
        Some(url) => Connect::new(url),
        None => Connect::default_store(),
    };
    connect.namespace(namespace).open().await
}

/// The engine behind the store, without clinch.
async fn engine(url: Option<&str>, id: ClientId) -> Result<Option<Box<dyn Engine>>> {
    let url = url.unwrap_or("sqlite:").parse()?;
    baseline::open(&url, &id.to_string()).await
}

/// Two threads for the tasks on any machine, so that figures of different runs can be compared. The baselines do
/// their I/O on them, too.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| internal(format!("cannot start a runtime: {error}")))
}

fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, message)
}
