//! Waiting for conditions, and polling by hand.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

/// How long anything that must happen may take, on the slowest machine: a test that gets here fails.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until a condition holds; panics when it does not come true.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(eventually_or(condition).await, "never came: {what}");
}

/// Waits until a condition holds; `false` when it does not come true.
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
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(PATIENCE, future).await;
    output.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Polls a future at most so many times, each time it wants to be, and drops it then, or when it has
/// not wanted to be polled for `idle`. `Some` when it had ended by then.
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
