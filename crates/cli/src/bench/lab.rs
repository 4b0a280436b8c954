//! What every cell needs.

use std::hash::{BuildHasher as _, RandomState};
use std::process::Command;
use std::time::Duration;

use clinch::{Clinch, Clock, Error};

use super::args::Args;
use super::cell::Times;
use super::progress::Progress;
use super::stop::Stop;

/// The store under test, the names to use, and how long to measure.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) clinch: Clinch,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    pub(super) progress: Progress,
    /// How long a cell runs.
    pub(super) times: Times,
    pub(super) quick: bool,
    /// Where other processes find the store.
    url: Option<String>,
    namespace: Option<String>,
    prefix: String,
}

/// Why a cell was not measured to its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// A signal.
    Stopped,
    /// The store, or the machine, could not do it.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Lab {
    pub(super) fn new(
        args: &Args,
        clinch: Clinch,
        url: Option<&str>,
        namespace: Option<&str>,
        stop: Stop,
    ) -> Self {
        let random = RandomState::new().hash_one(clinch.client_id());
        Self {
            clock: clinch.clock().clone(),
            clinch,
            stop,
            progress: Progress::new(),
            times: Times {
                warm_up: args.warm_up(),
                span: args.span(),
            },
            quick: args.quick,
            url: url.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            prefix: format!("clinch-bench/{random:016x}/"),
        }
    }

    /// A name of this run.
    pub(super) fn name(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Whether other processes see the same locks.
    pub(super) fn is_shared(&self) -> bool {
        self.clinch.info().scheme != "memory"
    }

    /// Whether claims can queue at the store, first come, first served.
    pub(super) fn has_queue(&self) -> bool {
        self.clinch.info().capabilities.queue
    }

    /// Tells another process which store to use: in its environment, where passwords do not show.
    pub(super) fn tell_store(&self, command: &mut Command) {
        if let Some(url) = &self.url {
            command.env("CLINCH_STORE", url);
        }
        if let Some(namespace) = &self.namespace {
            command.env("CLINCH_NAMESPACE", namespace);
        }
    }

    /// Sleeps, and wakes up early when told to stop.
    pub(super) async fn pause(&self, span: Duration) -> Result<(), Halt> {
        let end = self.clock.now() + span;
        loop {
            if self.stop.is_set() {
                return Err(Halt::Stopped);
            }
            let left = end.since(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.clock.sleep(left.min(Duration::from_millis(50))).await;
        }
    }

    /// How many names of this run still have holders or waiters; `None` where nobody can tell.
    pub(super) async fn left_behind(&self) -> Option<usize> {
        self.clinch.list(&self.prefix).await.ok().map(|l| l.len())
    }
}
