//! One connection that all callers share: made on demand, given up when it stalls, made again.
//!
//! At most one connection is made at a time. A caller that comes meanwhile waits for it, and shares its
//! failure. Connecting runs on the keeper: it goes on if its caller is dropped.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use clinch_core::{Clock, Result};
//! use clinch_kit::backoff::Backoff;
//! use clinch_kit::reconnect::{Connector, Reconnecting};
//!
//! struct Dial;
//!
//! impl Connector for Dial {
//!     type Connection = &'static str; // stands for a driver's connection
//!
//!     async fn connect(&self, _: &Arc<Reconnecting<Self>>, _: u64) -> Result<&'static str> {
//!         Ok("connection")
//!     }
//! }
//!
//! let pauses = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
//! let session = Reconnecting::new(Dial, Clock::boot(), pauses);
//! let live = session.live().await?;
//! assert_eq!(live.len(), "connection".len());
//! session.give_up(live.generation); // it did not answer
//! assert!(session.live().await?.generation > live.generation);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use clinch_core::{Clock, Error, Result, keeper};

use crate::backoff::Backoff;
use crate::lock;

/// How a connection is made, and when it is wanted.
pub trait Connector: Sized + Send + Sync + 'static {
    /// A connection; clones share it.
    type Connection: Clone + Send + Sync + 'static;

    /// Makes a connection, and sets its own time limit. Runs on the keeper.
    ///
    /// `generation` is the number of this attempt: what notices the connection's end passes it to
    /// [`Reconnecting::give_up`]. Such a callback keeps a weak reference to the session.
    fn connect(
        &self,
        session: &Arc<Reconnecting<Self>>,
        generation: u64,
    ) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// A connection was made and is in use. After the first attempt (generation 0), messages may have
    /// been lost before it.
    fn connected(&self, generation: u64) {
        let _ = generation;
    }

    /// Whether [`Reconnecting::reconnect`] goes on trying.
    fn is_needed(&self) -> bool {
        false
    }

    /// Whether the store is closed: a connection is then made for one caller and not kept.
    fn is_closed(&self) -> bool {
        false
    }
}

/// A connection that works, as far as is known.
#[derive(Debug, Clone)]
pub struct Live<C> {
    /// The driver's connection.
    pub connection: C,
    /// The number of the attempt that made it; it grows.
    pub generation: u64,
}

impl<C> Deref for Live<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

/// The connection of one client; see the [module](self).
pub struct Reconnecting<T: Connector> {
    connector: T,
    clock: Clock,
    pauses: Backoff,
    state: Mutex<State<T::Connection>>,
    /// Held while a connection is made, so that only one is.
    making: tokio::sync::Mutex<()>,
    attempts: AtomicU64,
    /// Whether a task tries in the background.
    retrying: AtomicBool,
}

struct State<C> {
    live: Option<Live<C>>,
    /// Generations below this are given up, also one that is being made.
    given_up: u64,
    /// Failed attempts, and the error of the last one.
    failures: (u64, Option<Error>),
}

impl<T: Connector> Reconnecting<T> {
    /// A session without a connection. `pauses` are those of [`reconnect`](Self::reconnect).
    pub fn new(connector: T, clock: Clock, pauses: Backoff) -> Arc<Self> {
        Arc::new(Self {
            connector,
            clock,
            pauses,
            state: Mutex::new(State {
                live: None,
                given_up: 0,
                failures: (0, None),
            }),
            making: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            retrying: AtomicBool::new(false),
        })
    }

    /// How connections are made.
    pub fn connector(&self) -> &T {
        &self.connector
    }

    /// The connection, if there is one.
    pub fn current(&self) -> Option<Live<T::Connection>> {
        lock(&self.state).live.clone()
    }

    /// The connection, made if there is none. While the server cannot be reached, each call tries, or
    /// shares the error of a try that was under way. Cancel safe: an attempt goes on.
    pub async fn live(self: &Arc<Self>) -> Result<Live<T::Connection>> {
        let failures = {
            let state = lock(&self.state);
            match &state.live {
                Some(live) => return Ok(live.clone()),
                None => state.failures.0,
            }
        };
        let session = self.clone();
        keeper::run(async move { session.make(failures).await }).await
    }

    async fn make(self: &Arc<Self>, failures_before: u64) -> Result<Live<T::Connection>> {
        let _making = self.making.lock().await;
        {
            let state = lock(&self.state);
            match (&state.live, &state.failures) {
                (Some(live), _) => return Ok(live.clone()),
                (None, (count, Some(error))) if *count != failures_before => {
                    return Err(error.clone());
                }
                _ => {}
            }
        }
        let generation = self.attempts.fetch_add(1, Ordering::Relaxed);
        let connection = match self.connector.connect(self, generation).await {
            Ok(connection) => connection,
            Err(error) => {
                let mut state = lock(&self.state);
                state.failures = (state.failures.0 + 1, Some(error.clone()));
                return Err(error);
            }
        };
        let live = Live {
            connection,
            generation,
        };
        {
            let mut state = lock(&self.state);
            if generation >= state.given_up {
                state.live = Some(live.clone());
            }
        }
        // Looked at after it was stored: closing sets the flag and then resets the session.
        match self.connector.is_closed() {
            true => self.reset(),
            false => self.connector.connected(generation),
        }
        Ok(live)
    }

    /// Gives up a connection. Returns `true` if it was the current one. One that is still being made is
    /// not kept.
    pub fn give_up(&self, generation: u64) -> bool {
        let mut state = lock(&self.state);
        state.given_up = state.given_up.max(generation.saturating_add(1));
        let current = state.live.as_ref().map(|live| live.generation);
        let gives_up = current == Some(generation);
        if gives_up {
            state.live = None;
        }
        gives_up
    }

    /// Gives up the current connection, whichever it is.
    pub fn reset(&self) {
        lock(&self.state).live = None;
    }

    /// Connects again in the background, with pauses, until there is a connection or
    /// [`Connector::is_needed`] says that none is needed.
    pub fn reconnect(self: &Arc<Self>) {
        if !self.is_missing() || self.retrying.swap(true, Ordering::SeqCst) {
            return;
        }
        let session = self.clone();
        if let Err(error) = keeper::spawn(async move { session.retry().await }) {
            self.retrying.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot connect again");
        }
    }

    async fn retry(self: &Arc<Self>) {
        let mut pauses = self.pauses.clone();
        loop {
            while self.is_missing() && self.live().await.is_err() {
                pauses.wait(&self.clock).await;
            }
            self.retrying.store(false, Ordering::SeqCst);
            // It may have been lost again before that.
            if !self.is_missing() || self.retrying.swap(true, Ordering::SeqCst) {
                return;
            }
            pauses.wait(&self.clock).await;
        }
    }

    fn is_missing(&self) -> bool {
        let wanted = self.connector.is_needed() && !self.connector.is_closed();
        wanted && self.current().is_none()
    }
}

impl<T: Connector> fmt::Debug for Reconnecting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = lock(&self.state).live.as_ref().map(|live| live.generation);
        f.debug_struct("Reconnecting")
            .field("generation", &generation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
