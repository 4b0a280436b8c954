//! Runs the test programs of this workspace side by side, each test with a time limit.
//!
//! ```sh
//! cargo build --workspace --all-targets --message-format=json |
//!     clinch-test-runner [--jobs N] [--limit SECONDS] [NAME…] -- --workspace
//! ```
//!
//! A NAME is a part of the names of the tests that are wanted. What comes after `--` tells cargo which
//! packages' doc tests to run; without it, none are. It prints one line for each program, and the
//! output of programs in which a test has failed. It ends with 0 if all tests have passed, and stops
//! everything when it is told to end.
#![allow(
    clippy::disallowed_methods,
    reason = "the time that tests take is no deadline of a lock"
)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod plan;
mod processes;
mod programs;
mod progress;
mod report;
mod run;
mod team;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use programs::Program;
use team::Team;

/// No test may take longer than this, unless the caller says otherwise.
const LIMIT: Duration = Duration::from_secs(300);

/// What the caller asks for.
struct Options {
    jobs: usize,
    limit: Duration,
    filters: Vec<String>,
    packages: Vec<String>,
}

fn main() -> ExitCode {
    let done = options(std::env::args().skip(1)).and_then(run);
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("clinch-test-runner: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> io::Result<Options> {
    let cores = std::thread::available_parallelism()?.get();
    let mut options = Options {
        // Tests mostly wait: for leases, and for servers to start.
        jobs: (2 * cores).max(4),
        limit: LIMIT,
        filters: Vec::new(),
        packages: Vec::new(),
    };
    let number = |word: Option<String>| {
        let number = word.and_then(|word| word.parse::<u64>().ok());
        number.ok_or_else(|| io::Error::other("a number is missing after --jobs or --limit"))
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--jobs" => options.jobs = usize::try_from(number(words.next())?).unwrap_or(1).max(1),
            "--limit" => options.limit = Duration::from_secs(number(words.next())?),
            "--" => options.packages.extend(words.by_ref()),
            _ => options.filters.push(word),
        }
    }
    Ok(options)
}

/// Runs everything; the exit status.
fn run(options: Options) -> io::Result<u8> {
    let listed = programs::read(io::stdin().lock())?
        .into_iter()
        .map(programs::list)
        .collect::<io::Result<Vec<Program>>>()?;
    let mut chosen: Vec<Program> = listed
        .into_iter()
        .filter_map(|program| program.select(&options.filters))
        .collect();
    if !options.packages.is_empty() {
        chosen.push(Program::doc_tests(&options.packages, &options.filters));
    }
    let (beside, alone) = plan::order(chosen);
    let mut team = Team::new(options.limit)?;
    let told = team.run(beside, options.jobs)?;
    let told = match told {
        None => team.run(alone, 1)?,
        told => told,
    };
    team.close(told)
}
