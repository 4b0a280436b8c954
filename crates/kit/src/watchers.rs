//! The streams of events that one client has open, each for the names with a prefix.
//!
//! For stores where all events arrive at one place. A store with one watch per stream needs no registry.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! # let clinch = clinch_core::Clinch::memory();
//! # let mut source = clinch.events("").await?;
//! # let _guard = clinch.lock("orders/1").acquire().await?;
//! # let event = source.next().await.unwrap();
//! use clinch_kit::watchers::Watchers;
//! let watchers = Watchers::default();
//! let (_sender, mut events) = watchers.add("orders/");
//! watchers.deliver(&event); // of the lock "orders/1"
//! assert_eq!(events.next().await, Some(event));
//! drop(events);
//! assert!(!watchers.is_watched());
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

use std::sync::Mutex;

use clinch_core::store::{Event, EventSender, Events};

use crate::lock;

/// The registry of open streams.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    streams: Vec<(String, EventSender)>,
    closed: bool,
}

impl Watchers {
    /// Opens a stream of the events of names that start with `prefix`.
    ///
    /// The sender tells when the stream is dropped ([`EventSender::closed`]); while it is kept, the
    /// stream does not end.
    pub fn add(&self, prefix: impl Into<String>) -> (EventSender, Events) {
        let (sender, events) = Events::channel();
        self.insert(prefix, sender.clone());
        (sender, events)
    }

    /// Registers a stream that was made before. `false`, and the sender is dropped, after
    /// [`close`](Self::close).
    pub fn insert(&self, prefix: impl Into<String>, sender: EventSender) -> bool {
        let mut open = lock(&self.0);
        if !open.closed {
            open.streams.push((prefix.into(), sender));
        }
        !open.closed
    }

    /// Sends an event to every stream that wants it, and removes streams that were dropped.
    pub fn deliver(&self, event: &Event) {
        let name = event.name.as_str();
        lock(&self.0).streams.retain(|(prefix, stream)| {
            if name.starts_with(prefix.as_str()) {
                stream.send(event.clone())
            } else {
                !stream.is_closed()
            }
        });
    }

    /// Whether any stream is open; removes those that were dropped.
    pub fn is_watched(&self) -> bool {
        let mut open = lock(&self.0);
        open.streams.retain(|(_, stream)| !stream.is_closed());
        !open.streams.is_empty()
    }

    /// Ends all streams, and refuses new ones.
    pub fn close(&self) {
        *lock(&self.0) = Open {
            streams: Vec::new(),
            closed: true,
        };
    }
}

#[cfg(test)]
mod tests {
    use clinch_core::store::EventKind;
    use clinch_core::{Name, OwnerId};

    use super::*;

    fn event(name: &str) -> Event {
        let owner = OwnerId::new("me");
        Event::new(EventKind::Granted, Name::new(name).unwrap(), owner)
    }

    #[tokio::test]
    async fn each_stream_has_the_events_of_its_prefix() {
        let watchers = Watchers::default();
        assert!(!watchers.is_watched());
        let (_, mut all) = watchers.add("");
        let (_, mut some) = watchers.add("a/");
        watchers.deliver(&event("b/1"));
        watchers.deliver(&event("a/1"));
        assert_eq!(some.next().await, Some(event("a/1")));
        assert_eq!(all.next().await, Some(event("b/1")));
        assert_eq!(all.next().await, Some(event("a/1")));
        drop(some);
        watchers.deliver(&event("b/2")); // prunes also what this event is not for
        assert_eq!(lock(&watchers.0).streams.len(), 1);
        assert!(watchers.is_watched());
        drop(all);
        assert!(!watchers.is_watched());
    }

    #[tokio::test]
    async fn closing_ends_all_streams_and_refuses_new_ones() {
        let watchers = Watchers::default();
        let (sender, mut events) = watchers.add("");
        drop(sender);
        watchers.close();
        assert_eq!(events.next().await, None);
        let (sender, mut late) = Events::channel();
        assert!(!watchers.insert("", sender));
        assert_eq!(late.next().await, None);
    }
}
