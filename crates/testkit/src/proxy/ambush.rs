//! A reply that is stopped on its way, so that a test can act meanwhile.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::link::Link;

/// Counts the replies of all connections down to the one that is waited for.
#[derive(Debug, Clone, Default)]
pub(super) struct Ambush(Arc<Mutex<Option<Waiting>>>);

/// How many replies are left, and who waits for the last of them.
type Waiting = (u64, oneshot::Sender<Link>);

impl Ambush {
    /// Waits for the n-th reply from now, instead of any other.
    pub(super) fn lay(&self, n: u64) -> oneshot::Receiver<Link> {
        let (sender, receiver) = oneshot::channel();
        *self.0.lock().unwrap() = Some((n, sender));
        receiver
    }

    /// Waits for no reply any more.
    pub(super) fn lift(&self) {
        *self.0.lock().unwrap() = None;
    }

    /// A reply has come; the one who waits for it, if it is that.
    pub(super) fn reply(&self) -> Option<oneshot::Sender<Link>> {
        let mut waiting = self.0.lock().unwrap();
        let (left, _) = waiting.as_mut()?;
        *left = left.saturating_sub(1);
        match left {
            0 => waiting.take().map(|(_, sender)| sender),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nth_reply_is_waited_for() {
        let ambush = Ambush::default();
        assert!(ambush.reply().is_none());
        let _receiver = ambush.lay(2);
        assert!(ambush.reply().is_none());
        assert!(ambush.reply().is_some());
        assert!(ambush.reply().is_none());
        let _receiver = ambush.lay(1);
        ambush.lift();
        assert!(ambush.reply().is_none());
    }
}
