//! Pauses between tries: they double up to a maximum, with jitter so that clients do not act in step.
//!
//! ```
//! use std::time::Duration;
//! use clinch_kit::backoff::Backoff;
//! const MS: Duration = Duration::from_millis(1);
//! let mut backoff = Backoff::new(20 * MS, 1000 * MS);
//! let pause = backoff.next_pause(); // between half and all of 20 ms
//! assert!(pause >= 10 * MS && pause <= 20 * MS);
//! assert_eq!(backoff.next_span(), 40 * MS); // without jitter
//! backoff.reset(); // it worked
//! assert_eq!(backoff.next_span(), 20 * MS);
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use clinch_core::Clock;

/// The steps in which a random span is chosen.
const STEPS: u32 = 1024;

/// A pause that doubles with every use.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    maximum: Duration,
    next: Duration,
}

impl Backoff {
    /// Begins with `first`; no pause is longer than `maximum`.
    pub const fn new(first: Duration, maximum: Duration) -> Self {
        Self {
            first,
            maximum,
            next: first,
        }
    }

    /// Begins again with the first pause.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause, without jitter.
    pub fn next_span(&mut self) -> Duration {
        let span = self.next.min(self.maximum);
        self.next = span.saturating_mul(2);
        span
    }

    /// The next pause: between half and all of [`next_span`](Self::next_span).
    pub fn next_pause(&mut self) -> Duration {
        jitter(self.next_span())
    }

    /// Sleeps for the next pause.
    pub async fn wait(&mut self, clock: &Clock) {
        let pause = self.next_pause();
        clock.sleep(pause).await;
    }
}

/// `first`, doubled as often as `times` says, up to `maximum`: for callers that count their tries.
///
/// ```
/// use std::time::Duration;
/// use clinch_kit::backoff::doubled;
/// let (first, maximum) = (Duration::from_millis(10), Duration::from_millis(70));
/// assert_eq!(doubled(first, 0, maximum), first);
/// assert_eq!(doubled(first, 2, maximum), first * 4);
/// assert_eq!(doubled(first, 99, maximum), maximum);
/// ```
pub fn doubled(first: Duration, times: u32, maximum: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(times);
    first.saturating_mul(factor).min(maximum)
}

/// Between half and all of a span.
///
/// ```
/// use std::time::Duration;
/// let pause = clinch_kit::backoff::jitter(Duration::from_secs(2));
/// assert!(pause >= Duration::from_secs(1) && pause <= Duration::from_secs(2));
/// ```
pub fn jitter(span: Duration) -> Duration {
    between(span / 2, span)
}

/// A random span from `low` to `high`, both included; `low` if `high` is less.
///
/// ```
/// use std::time::Duration;
/// let pause = clinch_kit::backoff::between(Duration::ZERO, Duration::from_millis(5));
/// assert!(pause <= Duration::from_millis(5));
/// ```
pub fn between(low: Duration, high: Duration) -> Duration {
    let width = high.saturating_sub(low);
    // A fresh hasher has new keys; the process id separates forked children, which share them.
    let random = RandomState::new().hash_one(std::process::id());
    let part = u32::try_from(random % u64::from(STEPS + 1)).unwrap_or_default();
    // The product is exact for short spans and would overflow for very long ones.
    let width = width.checked_mul(part).map(|product| product / STEPS);
    low + width.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn spans_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(3 * MS, 10 * MS);
        let spans: Vec<_> = (0..5).map(|_| backoff.next_span()).collect();
        assert_eq!(spans, [3 * MS, 6 * MS, 10 * MS, 10 * MS, 10 * MS]);
        backoff.reset();
        assert_eq!(backoff.next_span(), 3 * MS);
        assert_eq!(Backoff::new(20 * MS, 10 * MS).next_span(), 10 * MS);
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX);
        endless.next_span();
        assert_eq!(endless.next_span(), Duration::MAX);
        assert_eq!(doubled(Duration::MAX, 3, Duration::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_covers_its_range_and_stays_in_it() {
        let pauses: Vec<_> = (0..1000).map(|_| jitter(100 * MS)).collect();
        let (low, high) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*low >= 50 * MS && *low < 60 * MS, "{low:?}");
        assert!(*high <= 100 * MS && *high > 90 * MS, "{high:?}");
        // Also of spans that are shorter than the steps.
        let short: Vec<_> = (0..100)
            .map(|_| jitter(Duration::from_nanos(400)))
            .collect();
        assert!(short.iter().any(|pause| *pause != short[0]));
        assert_eq!(between(5 * MS, 3 * MS), 5 * MS);
        let _ = between(Duration::ZERO, Duration::MAX);
    }

    #[tokio::test]
    async fn waiting_uses_the_pauses() {
        let (clock, start) = (Clock::boot(), Clock::boot().now());
        let mut backoff = Backoff::new(MS, 4 * MS);
        backoff.wait(&clock).await;
        assert!(clock.now().since(start) >= MS / 2);
        assert_eq!(backoff.next_span(), 2 * MS);
    }
}
