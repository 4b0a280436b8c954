//! Timers: sleeping tasks in the order of their deadlines.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::BootTime;

/// Wakes the timer thread: a kernel timer, or nothing if a test drives the clock.
pub(super) trait Alarm: fmt::Debug + Send + Sync {
    /// Fires at this moment; replaces the moment that was set before.
    fn arm(&self, at: BootTime);
    /// Blocks until it fires.
    fn wait(&self);
}

#[derive(Debug)]
pub(super) struct Timers {
    alarm: Box<dyn Alarm>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The moment up to which timers have fired.
    now: BootTime,
    next_id: u64,
    /// When the alarm fires next: not later than the first deadline. It may be earlier if a sleeper was
    /// dropped. That costs one idle wake-up, and saves a system call for each dropped sleep.
    armed: Option<BootTime>,
    sleepers: BTreeMap<(BootTime, u64), Waker>,
}

impl Timers {
    pub(super) fn new(alarm: Box<dyn Alarm>) -> Self {
        Self {
            alarm,
            state: Mutex::default(),
        }
    }

    pub(super) fn alarm(&self) -> &dyn Alarm {
        &*self.alarm
    }

    /// Wakes all tasks whose deadline is not after `now`.
    pub(super) fn fire(&self, now: BootTime) {
        let mut state = self.lock();
        state.now = state.now.max(now);
        let mut due = Vec::new();
        while let Some(entry) = state.sleepers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            due.push(entry.remove());
        }
        // It may have been armed for another moment since it fired.
        if state.armed.is_some_and(|at| at <= now) {
            state.armed = None;
        }
        let first = state.sleepers.first_key_value().map(|((at, _), _)| *at);
        if let Some(at) = first {
            self.arm(&mut state, at);
        }
        drop(state);
        due.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    pub(super) fn next_deadline(&self) -> Option<BootTime> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Makes the alarm fire at this moment or earlier.
    fn arm(&self, state: &mut State, at: BootTime) {
        if state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            self.alarm.arm(at);
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
/// hour.await; // completes at once
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
            // Removed from the map: it has fired.
            Some(id) if !state.sleepers.contains_key(&(self.deadline, id)) => {
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
            .sleepers
            .insert((self.deadline, id), cx.waker().clone());
        self.registered = Some(id);
        timers.arm(&mut state, self.deadline);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.registered {
            self.timers.lock().sleepers.remove(&(self.deadline, id));
        }
    }
}
