//! Settings of a client, safety margins of deadlines, and timeouts.

use std::time::Duration;

use crate::BootTime;
use crate::time::Clock;

/// The lease of a lock that sets none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Bounds on passing a hold between tasks of one process without a request to the store.
///
/// On release, the next local waiter for the same name gets the hold at once, with the next local
/// number in its token. The hold goes back to the store, so that other processes get their turn,
/// after `count` hand-overs or after `time` since the store's grant. It goes back sooner once
/// `quantum` has passed and every task that waited here at the first hand-over has had its turn. So
/// the turn of a process is as long as its own queue, and a waiter waits for little more than the
/// claims ahead of it.
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
    /// No hand-over later than this after the grant.
    pub time: Duration,
    /// Until this long after the grant, the hold is handed over even if every task of the first round
    /// has had its turn: it makes up for the round trip to the store.
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

/// How long a hold counts as valid, from the moment before its request was sent: the lease minus 1 %
/// for clocks that run at different rates, minus 10 ms (or a tenth of the lease, if that is shorter)
/// for the time between a check and the action after it.
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

/// Whether a grant is still valid at `now` if its lease counts from `sent`.
pub(super) fn still_valid(sent: BootTime, lease: Duration, now: BootTime) -> bool {
    now < sent + valid_for(lease)
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

/// Poll interval of a queued claim that gets no wake: short enough to keep its place in the queue
/// alive, long enough to put no load on the store.
pub(super) fn poll_after(lease: Duration) -> Duration {
    let pause = (lease / 6).clamp(Duration::from_millis(20), Duration::from_secs(2));
    jitter(pause)
}

/// Exponential backoff with jitter, after `tries` failures.
pub(crate) fn backoff(tries: u32) -> Duration {
    let pause = Duration::from_millis(10) * 2_u32.pow(tries.min(6));
    jitter(pause)
}

/// How long a release or a withdrawal is retried while the store does not answer. Longer than the
/// lease: on stores whose sessions carry all holds of a client, the end of one lease ends no hold.
pub(crate) fn retry_for(lease: Duration) -> Duration {
    (lease * 2).max(Duration::from_secs(60))
}

/// 75 to 125 % of a duration, so that clients do not act in lockstep.
fn jitter(span: Duration) -> Duration {
    let quarters = u32::try_from(crate::ids::random_u64() % 512).unwrap_or(256);
    span * 3 / 4 + span * quarters / 1024
}

/// Waits at most `timeout` for a reply; `None` if it has not arrived by then.
pub(crate) async fn with_timeout<T>(
    clock: &Clock,
    timeout: Duration,
    reply: impl Future<Output = T>,
) -> Option<T> {
    let mut reply = std::pin::pin!(reply);
    // Fast path: many replies are ready at the first poll and need no timer.
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(reply.as_mut().poll(cx))).await;
    if let std::task::Poll::Ready(output) = first {
        return Some(output);
    }
    tokio::select! {
        biased;
        output = reply => Some(output),
        () = clock.sleep(timeout) => None,
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
