//! Suspicions: what a store learns between two renewals that puts holds in question.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::RequestId;

/// Holds that may be gone, as far as the store can tell.
///
/// ```
/// use clinch_core::store::Suspicion;
/// let request = clinch_core::Identity::new().request();
/// assert!(Suspicion::All.is_about(request)); // the only connection was lost
/// assert!(!Suspicion::Of(vec![]).is_about(request));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspicion {
    /// All holds of this client.
    All,
    /// The holds of these claims.
    Of(Vec<RequestId>),
}

impl Suspicion {
    /// Whether the hold of this claim is in question.
    pub fn is_about(&self, request: RequestId) -> bool {
        match self {
            Self::All => true,
            Self::Of(requests) => requests.contains(&request),
        }
    }
}

/// The stream of a store's suspicions.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// let mut none = clinch_core::store::Suspicions::none();
/// assert_eq!(none.next().await, None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Suspicions(mpsc::UnboundedReceiver<Suspicion>);

impl Suspicions {
    /// An empty stream: for a store that detects a loss by renewals only.
    pub fn none() -> Self {
        let (_, suspicions) = mpsc::unbounded_channel();
        Self(suspicions)
    }

    /// The next suspicion; `None` at the end of the stream. Cancel safe.
    pub async fn next(&mut self) -> Option<Suspicion> {
        self.0.recv().await
    }
}

/// The listeners for a store's suspicions.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::{Suspicion, SuspicionRegistry};
/// let registry = SuspicionRegistry::default();
/// let mut suspicions = registry.register();
/// registry.deliver(&Suspicion::All);
/// assert_eq!(suspicions.next().await, Some(Suspicion::All));
/// registry.close();
/// assert_eq!(suspicions.next().await, None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct SuspicionRegistry(Mutex<Vec<mpsc::UnboundedSender<Suspicion>>>);

impl SuspicionRegistry {
    fn lock(&self) -> MutexGuard<'_, Vec<mpsc::UnboundedSender<Suspicion>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of all suspicions from now on.
    pub fn register(&self) -> Suspicions {
        let (listener, suspicions) = mpsc::unbounded_channel();
        self.lock().push(listener);
        Suspicions(suspicions)
    }

    /// Sends a suspicion to every listener.
    pub fn deliver(&self, suspicion: &Suspicion) {
        self.lock()
            .retain(|listener| listener.send(suspicion.clone()).is_ok());
    }

    /// Ends every stream.
    pub fn close(&self) {
        self.lock().clear();
    }
}
