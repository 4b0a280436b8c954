//! What every store of clinch needs, written once.
//!
//! | module | what it offers |
//! |---|---|
//! | [`url`] | hosts, login and parameters of a store URL |
//! | [`backoff`] | pauses that double, with jitter |
//! | [`batch`] | many callers' steps in one request |
//! | [`ledger`] | the client's own claims: live ones, and how recent ones ended |
//! | [`watchers`] | the streams of events of one client |
//! | [`reconnect`] | one connection for all callers, made again after it is lost |
//! | [`closed`] | the flag that ends background tasks |
//! | [`hash`] | FNV-1a, for values that are stored or compared between processes |
//!
//! A store depends on this crate and on `clinch-core`; the core never depends on it.

pub mod backoff;
pub mod batch;
pub mod closed;
pub mod hash;
pub mod ledger;
pub mod reconnect;
pub mod url;
pub mod watchers;

pub use clinch_core::store::{SuspicionRegistry, WakeRegistry};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after another thread has panicked while it held the lock.
///
/// For data that is complete between any two statements, as a map of entries is.
///
/// ```
/// let count = std::sync::Mutex::new(1);
/// *clinch_kit::lock(&count) += 1;
/// assert_eq!(*clinch_kit::lock(&count), 2);
/// ```
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
