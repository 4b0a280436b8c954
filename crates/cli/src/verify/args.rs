//! The options of `clinch verify`.

use std::path::PathBuf;
use std::time::Duration;

use clinch_verify::{Lab, Workload, Wrong};

/// What to put to the test, and for how long.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Minutes of faults [default: 1]
    #[arg(long, value_name = "N", value_parser = minutes, conflicts_with = "seconds")]
    pub(crate) minutes: Option<Duration>,
    /// Seconds of faults
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Worker processes at a time
    #[arg(long, value_name = "K", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) clients: u16,
    /// What they do
    #[arg(long, value_name = "W", value_delimiter = ',', value_parser = parse::<Workload>)]
    pub(crate) workload: Vec<Workload>,
    /// Which faults come when [default: a new one for each run, which is printed]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// The lease of the locks
    #[arg(long, value_name = "DUR", default_value = "1500ms", value_parser = parse_duration)]
    pub(crate) lease: Duration,
    /// Write one page with pictures
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Keep the history
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) history: Option<PathBuf>,
    /// Run nothing: check a history that was kept
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lab", "wrong"])]
    pub(crate) replay: Option<PathBuf>,
    /// Start an engine for the test and disturb it as well: sqlite, redis, redis-sentinel,
    /// redis-cluster, redis-quorum, mysql, etcd, zookeeper
    #[arg(long, value_name = "ENGINE", value_parser = parse::<Lab>, conflicts_with = "wrong")]
    pub(crate) lab: Option<Lab>,
    /// Put a lock to the test that is known to be wrong
    #[arg(long, value_name = "LOCK", value_parser = parse::<Wrong>)]
    pub(crate) wrong: Option<Wrong>,
    /// Write the first violation as a picture (SVG)
    #[arg(long, value_name = "FILE.svg", hide = true)]
    pub(crate) picture: Option<PathBuf>,
}

impl Args {
    /// For how long there are faults.
    pub(crate) fn span(&self) -> Duration {
        let given = self.seconds.or(self.minutes);
        given.unwrap_or(Duration::from_secs(60))
    }
}

fn parse<T: std::str::FromStr<Err = clinch::Error>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|error: clinch::Error| match error.advice() {
            Some(advice) => format!("{}; {advice}", error.message()),
            None => error.message().to_owned(),
        })
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    clinch::store::parse_duration(text).map_err(|error| error.message().to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    number(text).map(|minutes| Duration::from_secs_f64(minutes * 60.0))
}

fn seconds(text: &str) -> Result<Duration, String> {
    number(text).map(Duration::from_secs_f64)
}

/// Up to a day, in either unit.
fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    match (0.1..=1440.0).contains(&number) {
        true => Ok(number),
        false => Err("give 0.1 to 1440".to_owned()),
    }
}
