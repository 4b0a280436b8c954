//! Background tasks of a client, on the keeper; `close` waits for them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::Result;

/// Counts the tasks of one client.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    count: Arc<Count>,
}

#[derive(Debug, Default)]
struct Count {
    running: AtomicUsize,
    idle: Notify,
}

/// Counts one task until it is dropped.
struct Running(Arc<Count>);

impl Tasks {
    /// Runs a task on the keeper.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.count.running.fetch_add(1, Ordering::AcqRel);
        let running = Running(self.count.clone());
        crate::keeper::spawn(async move {
            task.await;
            drop(running);
        })
    }

    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.count.running.load(Ordering::Acquire)
    }

    /// Completes when no task runs.
    pub(crate) async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.count.idle.notified());
            idle.as_mut().enable();
            if self.count.running.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
