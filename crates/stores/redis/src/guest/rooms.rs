//! Who waits for the wake-ups of which channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::keeper;
use clinch_core::store::{Wake, WakeSender, Wakes};

use crate::session::Session;
use crate::wakes::Ears;

/// The channels on which others tell of their releases, with those of us who wait there.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    waiting: Mutex<HashMap<String, Vec<WakeSender>>>,
    /// Held while a subscription begins or ends, so that an end never follows the next beginning.
    changing: tokio::sync::Mutex<()>,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<WakeSender>>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, room| {
            room.retain(|waiter| !waiter.is_closed());
            !room.is_empty()
        });
        waiting
    }

    /// The channels that somebody waits on.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Whether somebody waits.
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Something was said on a channel.
    pub(crate) fn tell(&self, channel: &[u8]) {
        for (name, room) in self.lock().iter() {
            if name.as_bytes() == channel {
                room.iter().for_each(|waiter| _ = waiter.send(Wake::Hint));
            }
        }
    }

    /// Messages may have been lost: everybody should look again.
    pub(crate) fn hint_all(&self) {
        for waiter in self.lock().values().flatten() {
            waiter.send(Wake::Hint);
        }
    }

    /// Forgets everybody.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Listens on a channel until the waiter has gone. The first hint comes when listening has begun, so
/// that a release between the claim and that moment is not missed.
pub(super) fn listen(ears: &Arc<Ears>, session: &Arc<Session>, channel: String) -> Wakes {
    let (sender, wakes) = Wakes::channel();
    let mut waiting = ears.rooms.lock();
    let room = waiting.entry(channel.clone()).or_default();
    room.push(sender.clone());
    drop(waiting);
    let (ears, session) = (ears.clone(), session.clone());
    let listening = async move {
        {
            let _changing = ears.rooms.changing.lock().await;
            if let Err(error) = session.subscribe(&channel).await {
                // The next connection will listen; until then the slow poll has to do.
                tracing::warn!(%error, channel, "cannot listen for wake-ups");
            }
        }
        sender.send(Wake::Hint);
        sender.closed().await;
        let _changing = ears.rooms.changing.lock().await;
        if !ears.rooms.lock().contains_key(&channel) {
            session.unsubscribe(&channel).await;
        }
    };
    if let Err(error) = keeper::spawn(listening) {
        tracing::error!(%error, "cannot listen for wake-ups");
    }
    wakes
}
