//! `clinch bench`: what this store costs, beside the least that its engine could cost.
//!
//! One run measures the floor and the lock on the same store, so that ratios mean something on any
//! machine. Cells run one after the other, each with a warm-up:
//!
//! - [`cell`]: runs workers for a time and collects what they saw; [`hist`]: percentiles.
//! - [`pairs`]: [`floor`] and [`uncontended`] in turn; [`contended`]: one name, tasks of this process.
//! - [`processes`], [`handover`]: other processes; [`child`] starts and talks to them, and
//!   [`worker`] is what runs in them.
//! - [`renewal`]: the price of holding; [`command`]: `clinch run` beside `flock`.
//! - [`report`]: the figures (and the fields of `--json`); [`aims`], [`table`]: how people read them.
//!
//! Every name lies under a random prefix, and nothing of it stays in the store.

mod aims;
mod args;
mod cell;
mod child;
mod command;
mod contended;
mod floor;
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

pub(crate) use args::{Args, Cell};
use clinch::{Clinch, Connect, Error, ErrorKind, Result};
use lab::{Halt, Lab};
use report::Report;
use stop::Stop;
pub(crate) use worker::{Args as WorkerArgs, run as work};

/// Measures the store at `url` (the default store without one), prints the figures, and gives the
/// exit status.
pub(crate) fn run(
    args: &Args,
    url: Option<&str>,
    namespace: Option<&str>,
    json: bool,
) -> Result<i32> {
    let stop = Stop::on_signals()?;
    let runtime = runtime()?;
    let (report, failed) = runtime.block_on(measure(args, url, namespace, &stop))?;
    let text = match json {
        true => serde_json::to_string(&report)
            .map_err(|error| internal(format!("cannot write JSON: {error}")))?,
        false => table::render(&report),
    };
    // A reader that has gone does not want the figures.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    match failed {
        Some(error) => Err(error),
        None => Ok(stop.status()),
    }
}

/// Runs the cells in turn. What was measured before a failure or a signal is in the report.
async fn measure(
    args: &Args,
    url: Option<&str>,
    namespace: Option<&str>,
    stop: &Stop,
) -> Result<(Report, Option<Error>)> {
    let clinch = connect(url, namespace).await?;
    let lab = Lab::new(args, clinch.clone(), url, namespace, stop.clone());
    let mut report = Report::new(args, &clinch);
    let outcome = cells(args, &lab, &mut report).await;
    lab.progress.clear();
    report.left_behind = lab.left_behind().await;
    report.aims = aims::of(&report);
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

async fn connect(url: Option<&str>, namespace: Option<&str>) -> Result<Clinch> {
    let mut connect = match url {
        Some(url) => Connect::new(url),
        None => Connect::default_store(),
    };
    if let Some(namespace) = namespace {
        connect = connect.namespace(namespace);
    }
    connect.open().await
}

/// Two threads for the tasks, on any machine: figures of different runs can be compared.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .map_err(|error| internal(format!("cannot start a runtime: {error}")))
}

fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, message)
}
