//! Waiting for conditions, and polling by hand.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use clinch_testkit::wait::eventually;
//! let clinch = clinch_core::Clinch::memory();
//! drop(clinch.lock("a").acquire().await?); // released in the background
//! eventually("the lock is free", async || clinch.list("").await.unwrap().is_empty()).await;
//! # Ok(()) }
//! ```

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

/// How long anything that must happen may take, on the slowest machine: a test that gets here fails.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clinch_testkit::wait::PATIENCE;
/// let clinch = clinch_core::Clinch::memory();
/// assert!(clinch.lock("a").acquire_within(PATIENCE).await?.is_some());
/// # Ok(()) }
/// ```
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until a condition holds; panics when it does not come true.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clinch_testkit::wait::eventually;
/// let mut looks = 0;
/// eventually("the third look", async || { looks += 1; looks == 3 }).await;
/// assert_eq!(looks, 3);
/// # Ok(()) }
/// ```
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(eventually_or(condition).await, "never came: {what}");
}

/// Waits until a condition holds; `false` when it does not come true.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clinch_testkit::wait::eventually_or;
/// let (mut looks, mut seen) = (0, Vec::new());
/// let came = eventually_or(async || { seen.push(looks); looks += 1; looks == 2 }).await;
/// assert!(came, "never came; seen {seen:?}"); // a message that tells what there was
/// # Ok(()) }
/// ```
pub async fn eventually_or(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let give_up = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        if tokio::time::Instant::now() >= give_up {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Waits for a future that must end; panics when it does not.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clinch_testkit::wait::soon;
/// let clinch = clinch_core::Clinch::memory();
/// let guard = soon("the lock", clinch.lock("a").acquire()).await?;
/// assert!(guard.is_valid());
/// # Ok(()) }
/// ```
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(PATIENCE, future).await;
    output.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Polls a future at most so many times, each time it wants to be, and drops it then, or when it has
/// not wanted to be polled for `idle`. `Some` when it had ended by then.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use clinch_testkit::wait::{drop_after, eventually};
/// use std::time::Duration;
/// let clinch = clinch_core::Clinch::memory();
/// let guard = clinch.lock("a").acquire().await?;
/// let lock = clinch.lock("a");
/// assert!(drop_after(lock.acquire(), 1, Duration::from_secs(5)).await.is_none());
/// guard.release().await?;
/// eventually("nothing is left", async || clinch.list("").await.unwrap().is_empty()).await;
/// # Ok(()) }
/// ```
pub async fn drop_after<F: Future>(future: F, polls: usize, idle: Duration) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    let counted = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(idle, counted).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn futures_are_dropped_after_so_many_polls() {
        let idle = Duration::from_secs(5);
        let twice = || async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(drop_after(twice(), 0, idle).await, None);
        assert_eq!(drop_after(twice(), 1, idle).await, None);
        assert_eq!(drop_after(twice(), 2, idle).await, Some(7));
    }
}
