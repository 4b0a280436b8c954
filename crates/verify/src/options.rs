//! What a run is to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Lab, Workload, Wrong};

/// What a run is to do. Take the [`Default`] and change what differs.
///
/// ```
/// use clinch_verify::{Options, Target, Workload};
/// let options = Options {
///     target: Target::Store("sqlite:/tmp/locks.db".to_owned()),
///     workloads: vec![Workload::Hot],
///     seed: 7,
///     ..Options::default()
/// };
/// assert_eq!(options.clients, 6);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// What is put to the test.
    pub target: Target,
    /// The namespace of the locks.
    pub namespace: String,
    /// For how long there are faults.
    pub span: Duration,
    /// How many worker processes there are at a time.
    pub clients: usize,
    /// What they do; all that the store can do if empty.
    pub workloads: Vec<Workload>,
    /// Which faults come when. The same seed gives the same schedule, not the same interleaving.
    pub seed: u64,
    /// The lease of the locks.
    pub lease: Duration,
    /// The program, with its arguments, that calls [`work`](crate::work).
    pub worker: Vec<OsString>,
    /// Where the history is kept; nowhere without it.
    pub history: Option<PathBuf>,
    /// Where the page is written; nowhere without it.
    pub page: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            target: Target::Store("sqlite:".to_owned()),
            namespace: "clinch".to_owned(),
            span: Duration::from_secs(60),
            clients: 6,
            workloads: Vec::new(),
            seed: 0,
            lease: Duration::from_millis(1500),
            worker: Vec::new(),
            history: None,
            page: None,
        }
    }
}

/// What is put to the test.
///
/// ```
/// use clinch_verify::{Lab, Target};
/// assert!(matches!(Target::Lab("redis".parse()?), Target::Lab(Lab::Redis)));
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Target {
    /// A store that runs, by its URL.
    Store(String),
    /// An engine of its own, whose servers are killed and paused as well.
    Lab(Lab),
    /// One of the locks that tutorials teach, to see that it is caught.
    Wrong(Wrong),
}
