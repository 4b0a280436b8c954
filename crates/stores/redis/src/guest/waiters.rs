//! Guests that wait for releases by other libraries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::keeper;
use clinch_core::store::{Wake, WakeSender, Wakes};

use crate::connection::Session;
use crate::wakes::PushRouter;

/// The channels on which other libraries publish their releases, with our waiters of each.
#[derive(Debug, Default)]
pub(crate) struct GuestWaiters {
    waiting: Mutex<HashMap<String, Vec<WakeSender>>>,
    /// Held while a subscription begins or ends, so that an end never overtakes the next beginning.
    changing: tokio::sync::Mutex<()>,
}

impl GuestWaiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<WakeSender>>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
        waiting
    }

    /// The channels with waiters.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Whether there are waiters.
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// A message was published on a channel.
    pub(crate) fn hint(&self, channel: &[u8]) {
        for (name, waiters) in self.lock().iter() {
            if name.as_bytes() == channel {
                waiters
                    .iter()
                    .for_each(|waiter| _ = waiter.send(Wake::Hint));
            }
        }
    }

    /// Messages may have been lost: sends a hint to all waiters.
    pub(crate) fn hint_all(&self) {
        for waiter in self.lock().values().flatten() {
            waiter.send(Wake::Hint);
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Subscribes to a channel until the waiter has gone. The first hint is sent once the subscription has
/// begun, so that a release between the claim and the subscription is not missed.
pub(super) fn listen(pushes: &Arc<PushRouter>, session: &Arc<Session>, channel: String) -> Wakes {
    let (sender, wakes) = Wakes::channel();
    let mut waiting = pushes.guests.lock();
    let waiters = waiting.entry(channel.clone()).or_default();
    waiters.push(sender.clone());
    drop(waiting);
    let (pushes, session) = (pushes.clone(), session.clone());
    let subscribing = async move {
        {
            let _changing = pushes.guests.changing.lock().await;
            if let Err(error) = session.subscribe(&channel).await {
                // The next connection subscribes; until then the slow poll remains.
                tracing::warn!(%error, channel, "cannot subscribe to releases");
            }
        }
        sender.send(Wake::Hint);
        sender.closed().await;
        let _changing = pushes.guests.changing.lock().await;
        if !pushes.guests.lock().contains_key(&channel) {
            session.unsubscribe(&channel).await;
        }
    };
    if let Err(error) = keeper::spawn(subscribing) {
        tracing::error!(%error, "cannot subscribe to releases");
    }
    wakes
}
