//! The only reader of the wall clock. It seeds sequence numbers; no deadline depends on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2020-01-01 in seconds since 1970.
const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// Microseconds since 2020-01-01: lower bound of new sequence numbers on stores that make their own.
///
/// A wall clock may step back; a store therefore takes the greater of this and its last number + 1.
///
/// ```
/// use clinch_core::sequence_micros;
/// let last = sequence_micros() + 60_000_000; // given before the clock was set back by a minute
/// assert_eq!(sequence_micros().max(last + 1), last + 1);
/// ```
pub fn sequence_micros() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "seeds sequence numbers; no deadline depends on it"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH + EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros())
        .unwrap_or(crate::token::MAX_SEQ)
        .min(crate::token::MAX_SEQ)
}
