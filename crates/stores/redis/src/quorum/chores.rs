//! Work that nobody waits for: it runs on the keeper, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{Clock, Name, Result, keeper};
use tokio::sync::watch;

use super::answers::Answers;
use super::nodes::{Nodes, Step};
use crate::record::Reply;

/// For how long a server that does not answer is told again.
const INSIST: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is still to be done in the background.
#[derive(Debug)]
pub(crate) struct Chores {
    under_way: watch::Sender<usize>,
    closed: watch::Sender<bool>,
    clock: Clock,
}

impl Chores {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            under_way: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            clock,
        })
    }

    /// Does something in the background.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let one = One::new(self.clone());
        let spawned = keeper::spawn(async move {
            work.await;
            drop(one);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "what is left at servers runs out by itself");
        }
    }

    /// Hears the answers that are still to come.
    pub(crate) fn hear(
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

    /// Tells a server something until it has answered, for a while.
    pub(crate) fn insist(self: &Arc<Self>, nodes: &Arc<Nodes>, at: usize, name: &Name, step: Step) {
        let (chores, nodes, name) = (self.clone(), nodes.clone(), name.clone());
        // On its way before anything that is sent after this call.
        let mut coming = nodes.send(at, &name, &step);
        self.spawn(async move {
            let give_up = chores.clock.now() + INSIST;
            let mut pause = FIRST_PAUSE;
            while let Some(answer) = coming.take() {
                match answer.await {
                    Ok(Err(error)) if error.is_temporary() => {}
                    Err(_) => {}
                    Ok(_) => return,
                }
                if chores.clock.now() >= give_up || !chores.rest(pause).await {
                    tracing::warn!(lock = %name, "a server was not told: what it has runs out there");
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                coming = nodes.send(at, &name, &step);
            }
        });
    }

    /// Waits for so long; `false` when the store is closed before.
    async fn rest(&self, pause: Duration) -> bool {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => false,
            () = self.clock.sleep(pause) => true,
        }
    }

    /// Ends: what is under way is finished within so long, and nothing is tried again.
    pub(crate) async fn close(&self, within: Duration) {
        self.closed.send_replace(true);
        let mut under_way = self.under_way.subscribe();
        tokio::select! {
            biased;
            _ = under_way.wait_for(|count| *count == 0) => {}
            () = self.clock.sleep(within) => {}
        }
    }
}

/// One chore, counted while it lives.
struct One(Arc<Chores>);

impl One {
    fn new(chores: Arc<Chores>) -> Self {
        chores.under_way.send_modify(|count| *count += 1);
        Self(chores)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0
            .under_way
            .send_modify(|count| *count = count.saturating_sub(1));
    }
}
