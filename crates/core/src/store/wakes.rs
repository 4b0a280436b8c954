//! Hints to waiters.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::Grant;
use crate::RequestId;

/// Bound on the wakes that are kept for claims without a listener.
const MOST_EARLY: usize = 1024;

/// A message from the store to one queued claim.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name, memory::MemoryStore, store::Claim};
/// # let context = Clinch::context("app")?;
/// # let claim = Claim::new(&context.identity, Name::new("a")?, std::time::Duration::from_secs(30));
/// # let store = MemoryStore::new(context.clone());
/// use clinch_core::store::{ClaimReply, Store, Wake};
/// let ClaimReply::Granted(grant) = store.claim(&claim).await? else { panic!("it is free") };
/// let next = claim.another(&context.identity);
/// store.claim(&next).await?;
/// let mut wakes = store.wakes(&next);
/// store.release(&claim.hold(grant.seq)).await?;
/// assert!(matches!(wakes.next().await, Some(Wake::Granted(_))));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Repeating the claim is worthwhile.
    Hint,
    /// The claim has been granted. Its lease counts from the send time of a claim of this waiter that the
    /// store is known to have applied before the grant, so no further round trip is needed.
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

/// The listeners for wakes, by claim, for stores that receive all wakes in one place.
///
/// A wake that arrives before its listener is kept for a while. So a store that receives wakes from the
/// moment a claim was queued can set [`Queued::wakes_kept`](super::Queued::wakes_kept).
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let request = clinch_core::Identity::new().request();
/// use clinch_core::store::{Wake, WakeRegistry};
/// let registry = WakeRegistry::default();
/// registry.deliver(request, Wake::Hint); // it came early
/// let mut wakes = registry.register(request);
/// assert_eq!(wakes.next().await, Some(Wake::Hint));
/// registry.hint_all(); // a connection was lost: every waiter repeats its claim
/// assert_eq!(wakes.next().await, Some(Wake::Hint));
/// assert!(registry.awaits(request));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct WakeRegistry(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    listening: HashMap<RequestId, WakeSender>,
    early: VecDeque<(RequestId, Wake)>,
}

impl WakeRegistry {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wakes of this claim, those that arrived before included.
    pub fn register(&self, request: RequestId) -> Wakes {
        let (sender, wakes) = Wakes::channel();
        let mut listeners = self.lock();
        listeners.listening.retain(|_, waiter| !waiter.is_closed());
        if let Some(at) = listeners
            .early
            .iter()
            .position(|(early, _)| *early == request)
            && let Some((_, wake)) = listeners.early.remove(at)
        {
            sender.send(wake);
        }
        listeners.listening.insert(request, sender);
        wakes
    }

    /// Sends a wake to the listener of this claim, or keeps it until there is one.
    pub fn deliver(&self, request: RequestId, wake: Wake) {
        let mut listeners = self.lock();
        let listener = match wake {
            Wake::Hint => listeners.listening.get(&request).cloned(),
            Wake::Granted(_) => listeners.listening.remove(&request),
        };
        match listener {
            Some(listener) => {
                listener.send(wake);
            }
            None => {
                if listeners.early.len() >= MOST_EARLY {
                    listeners.early.pop_front();
                }
                listeners.early.push_back((request, wake));
            }
        }
    }

    /// Sends a hint to every listener: wakes may have been lost.
    pub fn hint_all(&self) {
        let mut listeners = self.lock();
        listeners
            .listening
            .retain(|_, waiter| waiter.send(Wake::Hint));
    }

    /// Whether this claim has a listener.
    pub fn awaits(&self, request: RequestId) -> bool {
        let listeners = self.lock();
        let waiter = listeners.listening.get(&request);
        waiter.is_some_and(|waiter| !waiter.is_closed())
    }

    /// Whether any claim has a listener.
    pub fn is_awaited(&self) -> bool {
        let mut listeners = self.lock();
        listeners.listening.retain(|_, waiter| !waiter.is_closed());
        !listeners.listening.is_empty()
    }

    /// Ends every stream.
    pub fn close(&self) {
        *self.lock() = Listeners::default();
    }
}
