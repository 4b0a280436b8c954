//! The uncontended lock.

use std::time::Duration;

use clinch::{Clock, Lock, Result};

use crate::cell::Work;
use crate::lab::Lab;

/// A worker with a name of its own.
pub(crate) struct Alone {
    lock: Lock,
    clock: Clock,
}

impl Work for Alone {
    async fn step(&mut self) -> Result<Option<Duration>> {
        let from = self.clock.now();
        let guard = self.lock.acquire().await?;
        guard.release().await?;
        Ok(Some(self.clock.now().since(from)))
    }
}

/// `count` workers, each with a name of its own.
pub(crate) fn workers(lab: &Lab, count: u64) -> Vec<Alone> {
    let one = |number| Alone {
        lock: lab.clinch.lock(lab.name(&format!("alone/{number}"))),
        clock: lab.clock.clone(),
    };
    (0..count).map(one).collect()
}
