//! Sleeping tasks in the order of their deadlines.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::BootTime;

/// What makes timers ring: a kernel timer, or nothing where a test drives the clock.
pub(super) trait Ring: fmt::Debug + Send + Sync {
    /// Rings at the latest at this moment; replaces the moment set before.
    fn arm(&self, at: BootTime);
    /// Blocks until it rings.
    fn wait(&self);
}

#[derive(Debug)]
pub(super) struct Timers {
    ring: Box<dyn Ring>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The moment up to which timers have fired.
    now: BootTime,
    next_id: u64,
    /// When it rings next. Not later than the first deadline; earlier after a sleeper has gone,
    /// which costs one idle ring instead of a system call for each sleep that is not needed.
    armed: Option<BootTime>,
    sleeping: BTreeMap<(BootTime, u64), Waker>,
}

impl Timers {
    pub(super) fn new(ring: Box<dyn Ring>) -> Self {
        Self {
            ring,
            state: Mutex::default(),
        }
    }

    pub(super) fn ring(&self) -> &dyn Ring {
        &*self.ring
    }

    /// Wakes everyone whose deadline is not after `now`.
    pub(super) fn fire(&self, now: BootTime) {
        let mut state = self.lock();
        state.now = state.now.max(now);
        let mut due = Vec::new();
        while let Some(entry) = state.sleeping.first_entry() {
            if entry.key().0 > now {
                break;
            }
            due.push(entry.remove());
        }
        // It may have been armed anew for another moment since it rang.
        if state.armed.is_some_and(|at| at <= now) {
            state.armed = None;
        }
        let first = state.sleeping.first_key_value().map(|((at, _), _)| *at);
        if let Some(at) = first {
            self.arm(&mut state, at);
        }
        drop(state);
        due.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    pub(super) fn next(&self) -> Option<BootTime> {
        self.lock().sleeping.keys().next().map(|(at, _)| *at)
    }

    /// Makes sure that it rings at the latest at this moment.
    fn arm(&self, state: &mut State, at: BootTime) {
        if state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            self.ring.arm(at);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes at a moment of its [`Clock`](super::Clock). Made by [`Clock::sleep`](super::Clock::sleep).
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::Clock;
/// use std::time::Duration;
/// let (clock, hand) = Clock::manual();
/// let hour = clock.sleep(Duration::from_secs(3600));
/// hand.advance(Duration::from_secs(3600));
/// hour.await; // over at once
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Sleep {
    timers: Arc<Timers>,
    deadline: BootTime,
    /// The key under which it is registered.
    registered: Option<u64>,
}

impl Sleep {
    pub(super) fn new(timers: Arc<Timers>, deadline: BootTime) -> Self {
        Self {
            timers,
            deadline,
            registered: None,
        }
    }

    /// When it completes.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers.clone();
        let mut state = timers.lock();
        let id = match self.registered {
            // Not in the map any more: it has fired.
            Some(id) if !state.sleeping.contains_key(&(self.deadline, id)) => {
                self.registered = None;
                return Poll::Ready(());
            }
            Some(id) => id,
            None if self.deadline <= state.now => return Poll::Ready(()),
            None => {
                state.next_id += 1;
                state.next_id
            }
        };
        state
            .sleeping
            .insert((self.deadline, id), cx.waker().clone());
        self.registered = Some(id);
        timers.arm(&mut state, self.deadline);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.registered {
            self.timers.lock().sleeping.remove(&(self.deadline, id));
        }
    }
}
