//! The same locks for synchronous code.
//!
//! Each type wraps its async twin and waits on the calling thread; no runtime is needed. A guard
//! that is dropped has been released when `drop` returns.
//!
//! ```
//! let clinch = clinch::blocking::connect("memory:")?;
//! let guard = clinch.lock("orders/42").acquire()?;
//! drop(guard); // has been released when this returns
//! assert!(clinch.inspect("orders/42")?.is_none());
//! # Ok::<_, clinch::Error>(())
//! ```

pub use clinch_core::blocking::{
    Clinch, Election, Events, Guard, Leader, Lock, MultiGuard, MultiLock, Observer, RwLock,
    Semaphore, block_on,
};

/// Connects to a store; see [`connect`](crate::connect). With options:
/// [`Connect::open_blocking`](crate::Connect::open_blocking).
///
/// ```
/// let clinch = clinch::blocking::connect("memory:")?;
/// let guard = clinch.lock("orders/42").acquire()?;
/// # Ok::<_, clinch::Error>(())
/// ```
pub fn connect(url: impl AsRef<str>) -> crate::Result<Clinch> {
    block_on(crate::connect(url)).map(Clinch::from)
}
