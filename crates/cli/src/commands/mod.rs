//! One module for each command.

#[cfg(feature = "bench")]
mod bench;
mod check;
mod doctor;
mod elect;
mod evict;
mod hold;
mod list;
mod run;
mod show;
mod stores;
#[cfg(feature = "verify")]
mod verify;
mod watch;

use std::future::Future;

use clinch::Clinch;
use clinch::blocking::block_on;

use crate::args::{Cli, Command};
use crate::context::Context;
#[cfg(not(all(feature = "bench", feature = "verify")))]
use crate::failure::Failure;
use crate::failure::Outcome;

/// Runs a command and reports its failure; the exit status.
pub(crate) fn main(cli: Cli) -> i32 {
    let context = Context::new(cli.global);
    let outcome = match cli.command {
        Command::Run(args) => run::main(&context, &args),
        Command::Hold(args) => block_on(hold::main(&context, &args)),
        Command::Elect(args) => elect::main(&context, &args),
        Command::List(args) => block_on(list::main(&context, &args)),
        Command::Show(args) => block_on(show::main(&context, &args)),
        Command::Watch(args) => block_on(watch::main(&context, &args)),
        Command::Check(args) => block_on(check::main(&context, &args)),
        Command::Evict(args) => block_on(evict::main(&context, &args)),
        Command::Stores => stores::main(&context),
        Command::Doctor(args) => match args.print_schema {
            true => doctor::print_schema(&context),
            false => block_on(doctor::main(&context)),
        },
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::main(&context, &args),
        #[cfg(not(feature = "bench"))]
        Command::Bench { .. } => Err(Failure::usage("this build has no benchmark")
            .with_advice("build it with the feature `bench`")),
        #[cfg(feature = "bench")]
        Command::BenchWorker(args) => bench::worker(&context, &args),
        #[cfg(feature = "verify")]
        Command::Verify(args) => verify::main(&context, &args),
        #[cfg(not(feature = "verify"))]
        Command::Verify { .. } => Err(Failure::usage("this build has no verifier").with_advice(
            "build it in: `cargo run --release --features verify -- verify …` in the source tree",
        )),
        #[cfg(feature = "verify")]
        Command::VerifyWorker => Ok(clinch_verify::work()),
    };
    outcome.unwrap_or_else(|failure| failure.report(context.json))
}

/// Opens the store, does the work, and ends the session, however the work ended.
async fn with_store<'a, F>(context: &'a Context, work: impl FnOnce(Clinch) -> F) -> Outcome
where
    F: Future<Output = Outcome> + 'a,
{
    let clinch = context.connect().await?;
    let outcome = work(clinch.clone()).await;
    close(&clinch).await;
    outcome
}

/// Ends the session.
async fn close(clinch: &Clinch) {
    // What the work came to is what the user asked about; a session that cannot be ended cleanly
    // ends by itself.
    let _ = clinch.close().await;
}
