//! Whether the store is closed.

use tokio::sync::watch;

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct Closed(watch::Sender<bool>);

impl Closed {
    pub(crate) fn is_closed(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when the store is closed.
    pub(crate) async fn wait(&self) {
        // It cannot fail: the sender is our own.
        let _ = self.0.subscribe().wait_for(|closed| *closed).await;
    }

    /// Sets it; `false` if it was set before.
    pub(crate) fn close(&self) -> bool {
        !self.0.send_replace(true)
    }
}
