//! The same locks for synchronous code.
//!
//! Each type wraps its async twin and waits on the calling thread; no runtime is needed. A guard that
//! is dropped has been released when `drop` returns.
//!
//! ```
//! let clinch = clinch::blocking::Clinch::memory();
//! let guard = clinch.lock("orders/42").acquire()?;
//! assert!(guard.is_valid());
//! drop(guard);
//! assert!(clinch.list("")?.is_empty());
//! # Ok::<_, clinch::Error>(())
//! ```

mod client;
mod election;
mod events;
mod guard;
mod lock;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

pub use client::Clinch;
pub use election::{Election, Leader, Observer};
pub use events::Events;
pub use guard::{Guard, MultiGuard};
pub use lock::{Lock, MultiLock, RwLock, Semaphore};

/// Runs a future to completion on this thread.
///
/// ```
/// assert_eq!(clinch::blocking::block_on(async { 1 + 1 }), 2);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
