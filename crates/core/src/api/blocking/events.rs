//! Blocking iterators.

use super::block_on;
use crate::store::Event;

/// The blocking twin of [`Events`](crate::store::Events): an iterator that waits for the next event.
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let mut events = clinch.events("orders/")?;
/// let guard = clinch.lock("orders/42").acquire()?;
/// assert_eq!(events.next().unwrap().token, Some(guard.token()));
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug)]
pub struct Events(pub(super) crate::store::Events);

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        block_on(self.0.next())
    }
}
