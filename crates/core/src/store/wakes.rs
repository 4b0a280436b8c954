//! Hints to waiters.

use tokio::sync::mpsc;

use super::Grant;

/// A word from the store to one queued claim.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, OwnerId, memory::MemoryStore};
/// # let context = Clinch::context("app")?;
/// # let claim = clinch_core::store::Claim {
/// #     name: Name::new("a")?, request: context.identity.request(),
/// #     owner: OwnerId::new("me"), client: context.identity.info().clone(), units: 1, limit: 1,
/// #     lease: std::time::Duration::from_secs(30), lock_delay: std::time::Duration::ZERO,
/// #     label: None, value: None, queue: true };
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Hold, Store, Wake};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// let next = clinch_core::store::Claim { request: context.identity.request(), ..claim.clone() };
/// store.claim(&next).await?;
/// let mut wakes = store.wakes(&next);
/// store.release(&Hold { name: claim.name, request: claim.request, seq: grant.seq }).await?;
/// assert!(matches!(wakes.next().await, Some(Wake::Granted(_))));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Repeating the claim is worthwhile.
    Hint,
    /// The claim has been granted. Its lease is counted from the waiter's last acknowledged word
    /// before this, which is earlier than the grant, so no further round trip is needed.
    Granted(Grant),
}

/// The wakes of one queued claim.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::{Wake, Wakes};
/// let (store, mut wakes) = Wakes::channel();
/// store.send(Wake::Hint);
/// drop(store); // the store can give no more
/// assert_eq!(wakes.next().await, Some(Wake::Hint));
/// assert_eq!(wakes.next().await, None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Wakes(mpsc::UnboundedReceiver<Wake>);

/// The store's end of [`Wakes`].
///
/// ```
/// use clinch_core::store::{Wake, Wakes};
/// let (store, wakes) = Wakes::channel();
/// assert!(store.send(Wake::Hint));
/// drop(wakes); // the waiter has gone
/// assert!(store.is_closed() && !store.send(Wake::Hint));
/// ```
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
