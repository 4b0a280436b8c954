//! The knobs of a client, and the margins that deadlines are computed with.

use std::time::Duration;

use crate::time::Clock;

/// The lease of a lock that sets none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How a hold passes between tasks of one process without a word to the store.
///
/// On release, the next local waiter for the same name gets the hold at once, with the next local
/// sequence number in its token. The hold goes back to the store, so that other processes get their
/// turn, after `count` hand-overs, after `time` since the store's grant, or sooner: after `quantum`,
/// once everybody has had a turn who was waiting here at the first hand-over. So processes take turns
/// that are as long as their queues, and nobody waits for much more than all who are before them.
///
/// ```
/// let mut few = clinch::HandOver::default();
/// few.count = 3;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOver {
    /// The most hand-overs of one grant; at most 4095 are possible.
    pub count: u32,
    /// The longest time since the grant after which a hold is still handed over.
    pub time: Duration,
    /// For how long after the grant it is handed over in any case: it pays for the round trip.
    pub quantum: Duration,
}

impl HandOver {
    /// Every release goes to the store.
    pub const OFF: Self = Self {
        count: 0,
        time: Duration::ZERO,
        quantum: Duration::ZERO,
    };
}

impl Default for HandOver {
    fn default() -> Self {
        Self {
            count: 4095,
            time: Duration::from_millis(50),
            quantum: Duration::from_millis(2),
        }
    }
}

/// How a client behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// How long a claim is retried while the store cannot be reached.
    pub(crate) patience: Duration,
    /// Hand-over inside the process.
    pub(crate) hand_over: HandOver,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            hand_over: HandOver::default(),
        }
    }
}

/// For how long a hold may be called valid, counted from before its request was sent: the lease
/// less 1 % for clocks that run at different rates, less 10 ms (a tenth, if that is shorter) for
/// the way from a check to what follows it.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(clinch::valid_for(Duration::from_secs(10)), Duration::from_millis(9_890));
/// ```
pub fn valid_for(lease: Duration) -> Duration {
    let drift = lease / 100;
    let slack = Duration::from_millis(10).min(lease / 10);
    lease.saturating_sub(drift + slack)
}

/// When a hold is renewed, counted from when its last acknowledged request was sent: after a third of
/// the lease.
///
/// ```
/// let lease = clinch::DEFAULT_LEASE;
/// assert!(clinch::renew_after(lease) * 2 < clinch::valid_for(lease)); // one renewal may fail
/// ```
pub fn renew_after(lease: Duration) -> Duration {
    lease / 3
}

/// How long to wait for hints before a queued claim is repeated all the same: often enough to keep
/// its place alive, seldom enough to be no load.
pub(super) fn poll_after(lease: Duration) -> Duration {
    let pause = (lease / 6).clamp(Duration::from_millis(20), Duration::from_secs(2));
    jitter(pause)
}

/// The pause before try number `tries` after a failure.
pub(crate) fn backoff(tries: u32) -> Duration {
    let pause = Duration::from_millis(10) * 2_u32.pow(tries.min(6));
    jitter(pause)
}

/// For how long a release or a withdrawal is repeated while the store does not answer: also after the lease.
/// On engines whose sessions carry all holds of a client, the end of one lease ends nothing.
pub(crate) fn insist_for(lease: Duration) -> Duration {
    (lease * 2).max(Duration::from_secs(60))
}

/// Three quarters to five quarters of a span, so that clients do not march in step.
fn jitter(span: Duration) -> Duration {
    let quarters = u32::try_from(crate::ids::random_u64() % 512).unwrap_or(256);
    span * 3 / 4 + span * quarters / 1024
}

/// Waits for a store's reply for so long; `None` when it did not come.
pub(crate) async fn patient<T>(
    clock: &Clock,
    patience: Duration,
    reply: impl Future<Output = T>,
) -> Option<T> {
    let mut reply = std::pin::pin!(reply);
    // Most replies are there at the first poll or soon: set no timer before it is needed.
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(reply.as_mut().poll(cx))).await;
    if let std::task::Poll::Ready(output) = first {
        return Some(output);
    }
    tokio::select! {
        biased;
        output = reply => Some(output),
        () = clock.sleep(patience) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_shorter_than_the_lease() {
        for ms in [10, 100, 1_000, 30_000] {
            let lease = Duration::from_millis(ms);
            assert!(valid_for(lease) < lease && valid_for(lease) >= lease * 85 / 100);
            assert!(renew_after(lease) < valid_for(lease) / 2);
        }
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        for _ in 0..1000 {
            let j = jitter(Duration::from_millis(100));
            assert!((75..=125).contains(&j.as_millis()), "{j:?}");
        }
    }
}
