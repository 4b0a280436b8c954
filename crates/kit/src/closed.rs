//! The flag that says that a store is closed, and ends its background tasks.
//!
//! ```
//! # async fn demo() {
//! use clinch_kit::closed::Closed;
//! let closed = Closed::default();
//! let closing = closed.closing(); // for a task that does not keep the store alive
//! assert!(closed.close() && closed.is_closed());
//! assert!(!closed.close()); // it was closed before
//! closed.wait_closed().await;
//! assert_eq!(closing.or(std::future::pending::<()>()).await, None);
//! # }
//! # clinch_core::blocking::block_on(demo());
//! ```

use tokio::sync::watch;

/// Set once, when the store is closed.
#[derive(Debug, Default)]
pub struct Closed(watch::Sender<bool>);

impl Closed {
    /// Sets the flag. Returns `true` the first time.
    pub fn close(&self) -> bool {
        !self.0.send_replace(true)
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when the flag is set. Cancel safe.
    pub async fn wait_closed(&self) {
        // The sender is borrowed, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|closed| *closed).await;
    }

    /// The same for a task that must not keep the store alive.
    pub fn closing(&self) -> Closing {
        Closing(self.0.subscribe())
    }
}

/// Completes when the flag is set or dropped; see [`Closed::closing`].
#[derive(Debug, Clone)]
pub struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Completes when the store is closed or dropped. Cancel safe.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|closed| *closed).await;
    }

    /// Runs `future` until then; `None` if the store was closed or dropped first.
    pub async fn or<T>(mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.wait() => None,
            output = future => Some(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_flag_or_its_owner() {
        let closed = Closed::default();
        let (mut wait, mut owned) = (Box::pin(closed.wait_closed()), closed.closing());
        assert_eq!(closed.closing().or(ready(7)).await, Some(7));
        tokio::select! {
            biased;
            () = &mut wait => panic!("not closed yet"),
            () = owned.wait() => panic!("not closed yet"),
            () = ready(()) => {}
        }
        assert!(!closed.is_closed());
        closed.close();
        wait.await;
        // Closed wins over work that is ready.
        assert_eq!(closed.closing().or(ready(7)).await, None);

        let mut orphan = Closed::default().closing();
        orphan.wait().await;
    }
}
