//! The process-wide background thread for renewals, releases and withdrawals.
//!
//! It has its own runtime. So locks are renewed even if user code blocks every worker thread, and a
//! guard is released even if it is dropped after the user's runtime. The thread starts with the first
//! use and lives as long as the process.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! let double = clinch_core::keeper::run(async { Ok(2 * 21) }).await?;
//! assert_eq!(double, 42);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

/// Runs a future on the keeper. It runs to its end even if the caller is dropped.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let (sender, receiver) = std::sync::mpsc::channel();
/// clinch_core::keeper::spawn(async move { sender.send("done").unwrap() })?;
/// assert_eq!(receiver.recv().unwrap(), "done"); // it ran, without a runtime here
/// # Ok(()) }
/// ```
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    #[cfg(test)]
    let future = match crate::explore::hook::spawn(future) {
        Ok(spawned) => return spawned,
        Err(future) => future,
    };
    handle()?.spawn(future);
    Ok(())
}

/// Runs a future on the keeper and waits for its output, on any executor.
///
/// For stores whose driver needs a tokio reactor. If the caller is dropped, the future still runs
/// to its end.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::{Error, ErrorKind, keeper};
/// let port = keeper::run(async {
///     let refused = |error| Error::new(ErrorKind::Unreachable, "no socket").with_source(error);
///     let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.map_err(refused)?;
///     Ok(socket.local_addr().map_err(refused)?.port())
/// })
/// .await?;
/// assert_ne!(port, 0); // tokio's reactor, from an executor that is not tokio
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
pub async fn run<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (tx, rx) = oneshot::channel();
    spawn(async move {
        // Fails if the caller was dropped.
        let _ = tx.send(future.await);
    })?;
    rx.await.map_err(|_| {
        Error::new(
            ErrorKind::Internal,
            "a task of the keeper ended without output",
        )
    })?
}

/// The keeper's runtime.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let on_keeper = clinch_core::keeper::handle()?.spawn(async {
///     std::thread::current().name() == Some("clinch-keeper")
/// });
/// assert!(clinch_core::blocking::block_on(on_keeper).unwrap());
/// # Ok(()) }
/// ```
pub fn handle() -> Result<&'static Handle> {
    static KEEPER: OnceLock<Result<(u32, Handle)>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| Ok((crate::ids::pid(), start()?)));
    let (pid, handle) = keeper.as_ref().map_err(Clone::clone)?;
    if *pid != crate::ids::pid() {
        return Err(Error::new(
            ErrorKind::Internal,
            "the keeper's thread runs in the process that this one was forked from",
        )
        .with_advice("use clinch in a child that was started with exec"));
    }
    Ok(handle)
}

fn start() -> Result<Handle> {
    let failed = |what: &str, error: std::io::Error| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot start the keeper's {what}: {error}"),
        )
        .with_advice("check the limits on threads and open files")
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed("runtime", error))?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("clinch-keeper".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(|error| failed("thread", error))?;
    Ok(handle)
}
