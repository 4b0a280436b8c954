//! What a store has reason to doubt between two renewals.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::RequestId;

/// Holds of which a store cannot say that they are still there.
///
/// ```
/// use clinch_core::store::Doubt;
/// let request = clinch_core::Identity::new().request();
/// assert!(Doubt::All.is_about(request)); // the one connection was lost
/// assert!(!Doubt::Of(vec![]).is_about(request));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// All holds of this client.
    All,
    /// The holds of these claims.
    Of(Vec<RequestId>),
}

impl Doubt {
    /// Whether the hold of this claim is meant.
    pub fn is_about(&self, request: RequestId) -> bool {
        match self {
            Self::All => true,
            Self::Of(requests) => requests.contains(&request),
        }
    }
}

/// The doubts of one store, as they come.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// let mut none = clinch_core::store::Doubts::none(); // of a store that hears of nothing by itself
/// assert_eq!(none.next().await, None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Doubts(mpsc::UnboundedReceiver<Doubt>);

impl Doubts {
    /// For a store that learns of a loss by a renewal only.
    pub fn none() -> Self {
        let (_, doubts) = mpsc::unbounded_channel();
        Self(doubts)
    }

    /// The next doubt; `None` when the store can give no more. Cancel safe.
    pub async fn next(&mut self) -> Option<Doubt> {
        self.0.recv().await
    }
}

/// Who is told of a store's doubts.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::{Doubt, DoubtBook};
/// let book = DoubtBook::default();
/// let mut doubts = book.register();
/// book.tell(&Doubt::All);
/// assert_eq!(doubts.next().await, Some(Doubt::All));
/// book.close();
/// assert_eq!(doubts.next().await, None);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct DoubtBook(Mutex<Vec<mpsc::UnboundedSender<Doubt>>>);

impl DoubtBook {
    fn lock(&self) -> MutexGuard<'_, Vec<mpsc::UnboundedSender<Doubt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All doubts from now on.
    pub fn register(&self) -> Doubts {
        let (listener, doubts) = mpsc::unbounded_channel();
        self.lock().push(listener);
        Doubts(doubts)
    }

    /// Tells everybody who listens.
    pub fn tell(&self, doubt: &Doubt) {
        self.lock()
            .retain(|listener| listener.send(doubt.clone()).is_ok());
    }

    /// Ends every stream.
    pub fn close(&self) {
        self.lock().clear();
    }
}
