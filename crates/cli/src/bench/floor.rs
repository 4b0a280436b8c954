//! The least that a lock on this engine can cost, and the lock that people usually write on it.

use std::time::Duration;

use clinch::store::{Floor, Store};
use clinch::{Clock, Result};

use super::cell::Work;
use super::lab::Lab;

/// Which raw operations are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The fewest that a lock needs.
    Floor,
    /// The usual lock. It may deadlock or stall, so a failure of it is counted and goes on.
    Classic,
}

impl Kind {
    async fn open(self, store: &dyn Store) -> Result<Option<Box<dyn Floor>>> {
        match self {
            Self::Floor => store.floor().await,
            Self::Classic => store.classic().await,
        }
    }
}

/// A worker with raw operations of its own.
pub(super) struct Raw {
    kind: Kind,
    floor: Box<dyn Floor>,
    key: u64,
    clock: Clock,
    /// Pairs that came to nothing.
    pub(super) failed: u64,
}

impl Work for Raw {
    async fn step(&mut self) -> Result<Option<Duration>> {
        let from = self.clock.now();
        match self.floor.pair(self.key).await {
            Ok(()) => Ok(Some(self.clock.now().since(from))),
            Err(_) if self.kind == Kind::Classic => {
                self.failed += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// So many workers, each with raw operations of its own; `None` where the store has none.
pub(super) async fn workers(lab: &Lab, kind: Kind, count: u64) -> Result<Option<Vec<Raw>>> {
    let mut workers = Vec::new();
    for key in 0..count {
        let Some(floor) = kind.open(lab.clinch.store().as_ref()).await? else {
            return Ok(None);
        };
        workers.push(Raw {
            kind,
            floor,
            key,
            clock: lab.clock.clone(),
            failed: 0,
        });
    }
    Ok(Some(workers))
}
