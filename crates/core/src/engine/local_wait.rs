//! Waiting in a local queue.

use std::sync::{Arc, MutexGuard};

use tokio::sync::oneshot;

use super::local_queue::State;
use super::{LocalHold, LocalQueue};
use crate::{Error, ErrorKind, Result};

/// A caller's place in a local queue. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct LocalWait {
    local_queue: Arc<LocalQueue>,
    id: u64,
    receiver: Option<oneshot::Receiver<Result<LocalHold>>>,
}

impl LocalWait {
    pub(super) fn new(
        local_queue: Arc<LocalQueue>,
        id: u64,
        receiver: oneshot::Receiver<Result<LocalHold>>,
    ) -> Self {
        Self {
            local_queue,
            id,
            receiver: Some(receiver),
        }
    }

    pub(super) fn local_queue(&self) -> &Arc<LocalQueue> {
        &self.local_queue
    }

    /// Waits for a hold or an error. Cancel safe: the outcome is kept for the next call.
    pub(super) async fn outcome(&mut self) -> Result<LocalHold> {
        let gone = || Error::new(ErrorKind::Internal, "a local waiter got no outcome");
        let Some(receiver) = &mut self.receiver else {
            return Err(gone());
        };
        let outcome = receiver.await;
        self.receiver = None;
        outcome.map_err(|_| gone())?
    }

    /// Leaves the queue without a hold.
    pub(super) fn give_up(mut self) -> WaitEnd {
        let Some(mut receiver) = self.receiver.take() else {
            return WaitEnd::Nothing;
        };
        receiver.close();
        let last = receiver.try_recv().ok();
        let mut state = self.remove();
        let unanswered = (state.unanswered as usize).min(state.surplus());
        let end = match last {
            Some(last) => WaitEnd::Resolved(Box::new(last)),
            None if unanswered > state.withdrawal_listeners.len() => {
                let (sender, receiver) = oneshot::channel();
                state.withdrawal_listeners.push_back(sender);
                WaitEnd::Unanswered(receiver)
            }
            None => WaitEnd::Nothing,
        };
        drop(state);
        self.local_queue.notify_waiter_left();
        end
    }

    fn remove(&self) -> MutexGuard<'_, State> {
        let mut state = self.local_queue.state();
        state.waiters.retain(|waiter| waiter.id != self.id);
        state
    }
}

/// Result of [`LocalWait::give_up`].
pub(super) enum WaitEnd {
    /// The outcome arrived at the last moment.
    Resolved(Box<Result<LocalHold>>),
    /// Nothing arrived, and no request can still take effect for this waiter.
    Nothing,
    /// Nothing arrived, but a request on its behalf is unanswered. Receives `true` once that request
    /// can no longer take effect.
    Unanswered(oneshot::Receiver<bool>),
}

impl Drop for LocalWait {
    fn drop(&mut self) {
        if !self.local_queue.engine().is_own_process() {
            return;
        }
        if let Some(mut receiver) = self.receiver.take() {
            receiver.close();
            // If a hold has arrived, dropping it hands it over or releases it.
            drop(receiver.try_recv());
            drop(self.remove());
            self.local_queue.notify_waiter_left();
        }
    }
}
