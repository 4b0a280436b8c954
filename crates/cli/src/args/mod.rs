//! The command line.

mod help;
mod lock;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clinch::{Name, Sequencer, Token};

pub(crate) use lock::{HoldArgs, KindArgs, WaitArgs};
use lock::{duration, name, sequencer, token};

use crate::output::ColorChoice;

/// Distributed locks for shells, scripts and operators.
#[derive(Debug, Parser)]
#[command(name = "clinch", version, after_help = help::CLINCH, max_term_width = 100)]
#[command(disable_help_subcommand = true, infer_long_args = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The store, for example sqlite:/var/lib/app/locks.db [default: one file for each
    /// user]. Give a URL with a password in CLINCH_STORE: arguments show in the process list
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "CLINCH_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// Separates applications in one store [default: clinch]
    #[arg(long, global = true, value_name = "TEXT", env = "CLINCH_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Print data, and errors, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing while waiting
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// When to colour: auto, always or never; NO_COLOR is heeded
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs
    #[command(after_help = help::RUN)]
    Run(RunArgs),
    /// Hold a lock until told to stop
    #[command(after_help = help::HOLD)]
    Hold(HoldCommand),
    /// Run a command while leader
    #[command(after_help = help::ELECT)]
    Elect(ElectArgs),
    /// List locks with their holders and queues
    #[command(after_help = help::LIST)]
    List(PrefixArgs),
    /// Show one lock in full
    #[command(after_help = help::SHOW)]
    Show(NameArgs),
    /// Print events as they happen
    #[command(after_help = help::WATCH)]
    Watch(WatchArgs),
    /// Ask whether a sequencer is still current
    #[command(after_help = help::CHECK)]
    Check(CheckArgs),
    /// Break a hold, or end a lock-delay
    #[command(after_help = help::EVICT)]
    Evict(EvictArgs),
    /// Print what each store can do and promises
    #[command(after_help = help::STORES)]
    Stores,
    /// Look for settings of the store that would break a promise
    #[command(after_help = help::DOCTOR)]
    Doctor(DoctorArgs),
    /// Measure this store
    #[cfg(feature = "bench")]
    #[command(after_help = help::BENCH)]
    Bench(clinch_bench::Args),
    /// Measure this store (not in this build)
    #[cfg(not(feature = "bench"))]
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<std::ffi::OsString>,
    },
    /// Put this store to the test: clients, faults, and a check of every operation
    #[cfg(feature = "verify")]
    #[command(after_help = help::VERIFY)]
    Verify(crate::verify::Args),
    /// Put this store to the test (not in this build)
    #[cfg(not(feature = "verify"))]
    #[command(disable_help_flag = true)]
    Verify {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<std::ffi::OsString>,
    },
    /// What `verify` runs in other processes
    #[cfg(feature = "verify")]
    #[command(hide = true)]
    VerifyWorker,
    /// What `bench` runs in other processes
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchWorker(clinch_bench::WorkerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The lock: 1 to 255 bytes, `/` for hierarchy
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) kind: KindArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// How the child is treated.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct JobArgs {
    /// When the lock is lost: the time between TERM and KILL for all that the command has started;
    /// at most a third of the lease
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
    /// Let processes that the command has left in the background live on, outside the lock, when it
    /// has ended by itself
    #[arg(long)]
    pub(crate) leave_background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HoldCommand {
    /// The lock: 1 to 255 bytes, `/` for hierarchy
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Release after this time
    #[arg(long = "for", value_name = "DUR", value_parser = duration)]
    pub(crate) span: Option<Duration>,
    /// Release when standard input ends, too
    #[arg(long)]
    pub(crate) stdin: bool,
    #[command(flatten)]
    pub(crate) kind: KindArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ElectArgs {
    /// The election: 1 to 255 bytes, `/` for hierarchy
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// The command and its arguments, after `--`
    #[arg(last = true, value_name = "CMD", required_unless_present = "observe")]
    #[arg(conflicts_with = "observe")]
    pub(crate) command: Vec<OsString>,
    /// What the leader publishes [default: HOST:PID]
    #[arg(long, value_name = "TEXT", conflicts_with = "observe")]
    pub(crate) value: Option<String>,
    /// End when leadership is lost (status 76) instead of campaigning again
    #[arg(long, conflicts_with = "observe")]
    pub(crate) once: bool,
    /// Do not campaign: print who leads, and each change
    #[arg(long)]
    pub(crate) observe: bool,
    /// With --observe: end after so many lines
    #[arg(long, value_name = "N", requires = "observe")]
    pub(crate) count: Option<u64>,
    /// Campaign no longer than this [default: for ever]
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with = "observe")]
    pub(crate) wait: Option<Duration>,
    /// Go on campaigning for this long while the store cannot be reached [default: for ever]
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with = "observe")]
    pub(crate) patience: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: HoldArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PrefixArgs {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: Name,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) prefix: PrefixArgs,
    /// End after this time
    #[arg(long = "for", value_name = "DUR", value_parser = duration)]
    pub(crate) span: Option<Duration>,
    /// End after so many events
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// As CLINCH_SEQUENCER or `clinch hold` gave it, for example x:28672:orders/42
    #[arg(value_parser = sequencer)]
    pub(crate) sequencer: Sequencer,
}

#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: Name,
    /// Break only the hold with this token [default: every hold of the name]
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(crate) token: Option<Token>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print the tables that the store needs, for whoever makes them by hand, and do nothing else
    #[arg(long)]
    pub(crate) print_schema: bool,
}
