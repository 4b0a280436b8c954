//! What a worker process is told, as one line of JSON on its standard input.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One worker process's task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    /// Its number in the history.
    pub(crate) process: u32,
    /// Where it finds the store, which may be by way of a proxy.
    pub(crate) url: String,
    pub(crate) namespace: String,
    /// What every name begins with.
    pub(crate) prefix: String,
    /// The file that it writes.
    pub(crate) history: PathBuf,
    pub(crate) seed: u64,
    pub(crate) workloads: Vec<String>,
    pub(crate) lease_ms: u64,
    /// The socket of the protected resources.
    pub(crate) resource: PathBuf,
    /// A wrong lock to use instead of clinch's.
    pub(crate) wrong: Option<String>,
    /// By how many millionths its clients' clock is too fast.
    #[serde(default)]
    pub(crate) drift: i32,
    /// Nothing but this: look into this file with plain SQLite.
    #[serde(default)]
    pub(crate) peek: Option<PathBuf>,
}

impl Config {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

/// What a worker process says, a line at a time.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// It is connected and begins.
    Ready,
    /// It could not begin.
    Failed(String),
    /// So far.
    Counts(Counts),
    /// It has stopped and closed.
    Done(Counts),
}

/// What a worker process has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) grants: u64,
    pub(crate) errors: u64,
    pub(crate) losses: u64,
    /// Lines of the history that could not be written.
    pub(crate) unrecorded: u64,
}

/// What a worker process is told later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Block every thread of the runtime for so many milliseconds.
    Stall(u64),
    /// Close a client while it is used, and open another one.
    Close,
    /// Fork, and have the child use a client.
    Fork,
    /// Begin nothing more, and end.
    Stop,
}
