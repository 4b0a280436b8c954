//! Work that no caller awaits: it runs on the keeper, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{Clock, Name, Result, keeper};
use clinch_kit::backoff::Backoff;
use clinch_kit::closed::Closed;
use tokio::sync::watch;

use super::answers::Answers;
use super::nodes::{Nodes, Step};
use crate::record::Reply;

/// How long a step is repeated at a server that does not reply.
const INSIST: Duration = Duration::from_secs(30);
/// The pauses between two attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The background tasks of a store.
#[derive(Debug)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
    closed: Closed,
    clock: Clock,
}

impl Background {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            running: watch::Sender::new(0),
            closed: Closed::default(),
            clock,
        })
    }

    /// Runs a task in the background.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let one = One::new(self.clone());
        let spawned = keeper::spawn(async move {
            work.await;
            drop(one);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "what is left at servers expires there");
        }
    }

    /// Handles the replies that are still to arrive.
    pub(crate) fn handle(
        self: &Arc<Self>,
        mut answers: Answers,
        mut each: impl FnMut(usize, Result<Reply>) + Send + 'static,
    ) {
        if answers.pending() == 0 {
            return;
        }
        self.spawn(async move {
            while let Some((at, answer)) = answers.next().await {
                each(at, answer);
            }
        });
    }

    /// Repeats a step at a server until it has replied, for a limited time.
    pub(crate) fn insist(self: &Arc<Self>, nodes: &Arc<Nodes>, at: usize, name: &Name, step: Step) {
        let (background, nodes, name) = (self.clone(), nodes.clone(), name.clone());
        // Sent before anything that is sent after this call.
        let mut pending = nodes.send(at, &name, &step);
        self.spawn(async move {
            let give_up = background.clock.now() + INSIST;
            let mut pauses = PAUSES;
            while let Some(answer) = pending.take() {
                match answer.await {
                    Err(error) if error.is_temporary() => {}
                    _ => return,
                }
                if background.clock.now() >= give_up || !background.rest(pauses.next_span()).await {
                    tracing::warn!(lock = %name, "a server could not be reached: what it has expires there");
                    return;
                }
                pending = nodes.send(at, &name, &step);
            }
        });
    }

    /// Sleeps for `pause`; `false` if the store is closed before.
    async fn rest(&self, pause: Duration) -> bool {
        let sleep = self.clock.sleep(pause);
        self.closed.closing().or(sleep).await.is_some()
    }

    /// Stops repeating, and waits at most `within` for running tasks.
    pub(crate) async fn close(&self, within: Duration) {
        self.closed.close();
        let mut running = self.running.subscribe();
        tokio::select! {
            biased;
            _ = running.wait_for(|count| *count == 0) => {}
            () = self.clock.sleep(within) => {}
        }
    }
}

/// One task, counted while it runs.
struct One(Arc<Background>);

impl One {
    fn new(background: Arc<Background>) -> Self {
        background.running.send_modify(|count| *count += 1);
        Self(background)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0
            .running
            .send_modify(|count| *count = count.saturating_sub(1));
    }
}
