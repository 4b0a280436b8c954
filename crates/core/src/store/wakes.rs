//! Hints to waiters.

use tokio::sync::mpsc;

use super::Grant;

/// A word from the store to one queued claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Repeating the claim is worthwhile.
    Hint,
    /// The claim has been granted. Its lease is counted from the waiter's last acknowledged word
    /// before this, which is earlier than the grant, so no further round trip is needed.
    Granted(Grant),
}

/// The wakes of one queued claim.
#[derive(Debug)]
pub struct Wakes(mpsc::UnboundedReceiver<Wake>);

/// The store's end of [`Wakes`].
#[derive(Debug, Clone)]
pub struct WakeSender(mpsc::UnboundedSender<Wake>);

impl Wakes {
    /// A stream and the end that feeds it.
    pub fn channel() -> (WakeSender, Self) {
        let (tx, rx) = mpsc::unbounded_channel();
        (WakeSender(tx), Self(rx))
    }

    /// The next wake; `None` when the store can give no more. Cancel safe.
    pub async fn next(&mut self) -> Option<Wake> {
        self.0.recv().await
    }
}

impl WakeSender {
    /// Wakes the waiter; `false` when it has gone.
    pub fn send(&self, wake: Wake) -> bool {
        self.0.send(wake).is_ok()
    }

    /// Whether the waiter has gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Completes when the waiter has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
