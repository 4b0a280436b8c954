//! The options that say how a lock is claimed, and readers of their values.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clinch::{Name, Sequencer, Token};

/// Which side of which kind of lock.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Kind of lock (a mutex unless one is given)")]
pub(crate) struct KindArgs {
    /// Share it with others who say --shared
    #[arg(long, conflicts_with_all = ["exclusive", "permits"])]
    pub(crate) shared: bool,
    /// The only holder, of a lock that others take with --shared
    #[arg(long, conflicts_with = "permits")]
    pub(crate) exclusive: bool,
    /// Take K of the N permits of a semaphore
    #[arg(long, value_name = "K/N", value_parser = permits)]
    pub(crate) permits: Option<Permits>,
}

/// How long to wait for it.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    /// Wait no longer than this, then end with status 75 [default: for ever]
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: end with status 75 when it is taken
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Keep strict order with the waiters of other processes
    #[arg(long)]
    pub(crate) fair: bool,
    /// Go on waiting for this long while the store cannot be reached [default: 1m; 10s with
    /// --no-wait]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) patience: Option<Duration>,
}

/// How it is held.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Holding")]
pub(crate) struct HoldArgs {
    /// How long a hold outlives a holder that has gone silent [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) lease: Option<Duration>,
    /// Keep it taken for so long after a holder that died or was evicted [default: 0]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) lock_delay: Option<Duration>,
    /// Never hold it longer than this
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// A word for whoever looks at `clinch list`
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// Some permits of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    /// Permits to take.
    pub(crate) units: u32,
    /// Permits in all.
    pub(crate) limit: u32,
}

fn permits(text: &str) -> Result<Permits, String> {
    let wrong =
        || format!("{text:?} does not say how many of how many; write K/N, for example 1/5");
    let (units, limit) = text.split_once('/').ok_or_else(wrong)?;
    let (units, limit) = match (units.trim().parse(), limit.trim().parse()) {
        (Ok(units), Ok(limit)) => (units, limit),
        _ => return Err(wrong()),
    };
    match (units, limit) {
        (0, _) => Err(format!(
            "{text:?} takes no permit; write at least 1/{}",
            limit.max(1)
        )),
        (_, u32::MAX) => Err(format!("a semaphore has at most {} permits", u32::MAX - 1)),
        _ if units > limit => Err(format!(
            "{text:?} takes {units} of {limit} permits; write at most {limit}/{limit}"
        )),
        _ => Ok(Permits { units, limit }),
    }
}

pub(super) fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(one_line)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    clinch::store::parse_duration(text).map_err(one_line)
}

pub(super) fn sequencer(text: &str) -> Result<Sequencer, String> {
    Sequencer::from_str(text).map_err(one_line)
}

pub(super) fn token(text: &str) -> Result<Token, String> {
    Token::from_str(text).map_err(one_line)
}

fn one_line(error: clinch::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_say_how_many_of_how_many() {
        assert_eq!(permits("2/5"), Ok(Permits { units: 2, limit: 5 }));
        for bad in ["3", "/", "0/5", "6/5", "a/b", "-1/5", "1/4294967295", "1/0"] {
            assert!(permits(bad).is_err(), "{bad}");
        }
        assert!(permits("3").unwrap_err().contains("1/5"));
    }
}
