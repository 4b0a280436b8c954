//! Live events of a store.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use crate::{Name, OwnerId, Token};

/// Something that happened to a lock.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::store::EventKind;
/// let mut events = clinch.events("").await?;
/// clinch.lock("a").label("checkout").acquire().await?.release().await?;
/// let (granted, released) = (events.next().await.unwrap(), events.next().await.unwrap());
/// assert_eq!((granted.kind, released.kind), (EventKind::Granted, EventKind::Released));
/// assert_eq!(granted.token, released.token);
/// assert_eq!(granted.label.as_deref(), Some("checkout"));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The lock.
    pub name: Name,
    /// The owner of the claim.
    pub owner: OwnerId,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// The token, where it was or is held.
    pub token: Option<Token>,
    /// The published value, for [`EventKind::Published`] and grants with one.
    pub value: Option<Arc<str>>,
}

impl Event {
    /// An event of a claim whose process, label, token and value are not known.
    pub fn new(kind: EventKind, name: Name, owner: OwnerId) -> Self {
        Self {
            kind,
            name,
            owner,
            host: String::new(),
            pid: 0,
            label: None,
            token: None,
            value: None,
        }
    }
}

/// The kinds of events.
///
/// ```
/// use clinch_core::store::EventKind;
/// assert_eq!(EventKind::Evicted.to_string(), "evicted");
/// assert_eq!(EventKind::parse("evicted"), Some(EventKind::Evicted));
/// assert_eq!(EventKind::parse("Evicted"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A claim took a place in the queue.
    Queued,
    /// A claim was granted.
    Granted,
    /// A holder released it.
    Released,
    /// A lease ran out, or a process died, of a holder or of a waiter.
    Expired,
    /// An operator evicted a hold.
    Evicted,
    /// A claim left the queue.
    Withdrawn,
    /// A leader published a value.
    Published,
}

impl EventKind {
    /// The kind in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Evicted => "evicted",
            Self::Withdrawn => "withdrawn",
            Self::Published => "published",
        }
    }

    /// Reads what [`as_str`](Self::as_str) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Queued,
            Self::Granted,
            Self::Released,
            Self::Expired,
            Self::Evicted,
            Self::Withdrawn,
            Self::Published,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stream of events in the order in which they happened.
///
/// It ends when the store can give no more; reading lags behind without loss up to the store's own
/// bounds. Also a [`Stream`](futures_core::Stream).
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let mut events = clinch.events("orders/").await?;
/// let unseen = clinch.lock("invoices/1").acquire().await?;
/// let guard = clinch.lock("orders/1").acquire().await?;
/// assert_eq!(events.next().await.unwrap().name, *guard.name());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Events(mpsc::UnboundedReceiver<Event>);

/// The store's end of [`Events`].
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::store::Events;
/// let (store, events) = Events::channel();
/// assert!(!store.is_closed());
/// drop(events); // nobody listens any more
/// store.closed().await;
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct EventSender(mpsc::UnboundedSender<Event>);

impl Events {
    /// A stream and the end that feeds it.
    pub fn channel() -> (EventSender, Self) {
        let (tx, rx) = mpsc::unbounded_channel();
        (EventSender(tx), Self(rx))
    }

    /// The next event; `None` when the store can give no more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx)
    }
}

impl EventSender {
    /// Passes an event on; `false` when nobody listens any more.
    pub fn send(&self, event: Event) -> bool {
        self.0.send(event).is_ok()
    }

    /// Whether the listener has gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Completes when the listener has gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
