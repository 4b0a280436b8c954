//! The environment that all cells share.

use std::hash::{BuildHasher as _, RandomState};
use std::process::Command;
use std::time::Duration;

use clinch::{Clinch, Clock, Error, Result};
use tokio::sync::OnceCell;

use crate::args::Args;
use crate::baseline::Engine;
use crate::cell::Times;
use crate::progress::Progress;
use crate::stop::Stop;

/// The store under test, the names to use, and how long to measure.
pub(crate) struct Lab {
    pub(crate) clinch: Clinch,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
    pub(crate) progress: Progress,
    /// How long a cell runs.
    pub(crate) times: Times,
    pub(crate) quick: bool,
    /// `None`: the default store.
    url: Option<String>,
    namespace: String,
    prefix: String,
    /// The engine without clinch, opened with the first baseline.
    engine: OnceCell<Option<Box<dyn Engine>>>,
}

/// Why a cell was not measured to its end.
#[derive(Debug)]
pub(crate) enum Halt {
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
    pub(crate) fn new(
        args: &Args,
        clinch: Clinch,
        url: Option<&str>,
        namespace: &str,
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
            namespace: namespace.to_owned(),
            prefix: format!("clinch-bench/{random:016x}/"),
            engine: OnceCell::new(),
        }
    }

    /// A name of this run.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Whether other processes see the same locks.
    pub(crate) fn is_shared(&self) -> bool {
        self.clinch.info().scheme != "memory"
    }

    /// Whether claims can queue at the store, first come, first served.
    pub(crate) fn has_queue(&self) -> bool {
        self.clinch.info().capabilities.queue
    }

    /// The engine without clinch; `None` if there is nothing below the lock.
    pub(crate) async fn engine(&self) -> Result<Option<&dyn Engine>> {
        let open = || crate::engine(self.url.as_deref(), self.clinch.client_id());
        let engine = self.engine.get_or_try_init(open).await?;
        Ok(engine.as_deref())
    }

    /// Removes from the engine what the baselines have left there.
    pub(crate) async fn close(&self) -> Result<()> {
        match self.engine.get() {
            Some(Some(engine)) => engine.close().await,
            _ => Ok(()),
        }
    }

    /// Passes the store to another process in its environment, where passwords do not show.
    pub(crate) fn set_store(&self, command: &mut Command) {
        if let Some(url) = &self.url {
            command.env("CLINCH_STORE", url);
        }
        command.env("CLINCH_NAMESPACE", &self.namespace);
    }

    /// Sleeps; returns early with an error after a signal.
    pub(crate) async fn pause(&self, span: Duration) -> Result<(), Halt> {
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

    /// How many names of this run still have holders or waiters; `None` if the store cannot list them.
    pub(crate) async fn left_behind(&self) -> Option<usize> {
        self.clinch.list(&self.prefix).await.ok().map(|l| l.len())
    }
}
