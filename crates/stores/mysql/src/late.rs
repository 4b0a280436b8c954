//! Claims that arrive late: after their client has given up the connection, and perhaps after others
//! have held the lock many times. They never take it.
//!
//! Every statement but `names::take` demands the row's version, and a version is never used twice: a
//! copy of it that comes after any answer to its claim finds another one. A claim by `take` says until when it may be applied as a new one, by the server's
//! clock. The client estimates that clock; a wrong estimate costs a round trip and no safety, because
//! the server judges. If a copy of the claim had no reply, the end of the claim is remembered in the
//! row until the server's clock has passed the latest moment of that copy. Of a claim that was ended by
//! somebody else, or by time, only its client knows that: such an end is remembered in any case.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, RequestId};

use crate::row::span;

/// For how long a statement that has begun may take until it has its row: the server's clock is read
/// when it begins. Waits for locks end after a second each.
const HOLD_UP: Duration = Duration::from_secs(5);
/// For how long the client remembers a copy without a reply, beyond its latest moment: servers whose
/// clocks are set back judge by them.
const MEMORY: Duration = Duration::from_secs(600);

/// What a client knows of late copies.
#[derive(Debug)]
pub(crate) struct Late {
    /// How long a reply is waited for.
    timeout: Duration,
    /// What the server's clock said, and when the reply arrived.
    heard: Mutex<Option<(BootTime, u64)>>,
    /// Claims with a copy that had no reply: when it can be forgotten, and the copy's latest moment.
    unanswered: Mutex<HashMap<RequestId, (BootTime, u64)>>,
}

impl Late {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            heard: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }

    /// The server's clock was this when it answered.
    pub(crate) fn heard(&self, now: u64) {
        let heard = Some((Clock::boot().now(), now));
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    /// The latest moment, by the server's clock, at which a claim that is sent now may be applied.
    ///
    /// Before half of its lease is over, so that it is not much later than the end of a hold that another
    /// copy got: see [`after`](Self::after). 0 if the server's clock is not known.
    pub(crate) fn latest(&self, lease: Duration) -> u64 {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((when, servers)) = heard else {
            return 0;
        };
        let passed = Clock::boot().now().since(when);
        let ahead = self.patience().min(lease / 2);
        servers.saturating_add(span(passed + ahead))
    }

    /// The same for a claim that demands a row as it was read at `now` by the server's clock.
    pub(crate) fn latest_after(&self, now: u64) -> u64 {
        now.saturating_add(span(self.patience()))
    }

    /// For how long the end of a claim has to be remembered by those who do not know its copies.
    ///
    /// Its client sends the next copy when it has waited for a reply to the one before, and none is
    /// applied later than half a lease after it was sent. The client's `timeout` is not known: it is taken
    /// to be ours, or less than the lease.
    pub(crate) fn after(&self, lease: Duration) -> Duration {
        lease.min(MEMORY) + self.patience() + HOLD_UP
    }

    /// Nobody waits for a reply any more after that.
    fn patience(&self) -> Duration {
        self.timeout * 2
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<RequestId, (BootTime, u64)>> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of this claim had no reply.
    pub(crate) fn no_reply(&self, request: RequestId, latest: u64) {
        let now = Clock::boot().now();
        let mut all = self.unanswered();
        all.retain(|_, (forget, _)| *forget > now);
        let forget = now + self.patience() + MEMORY;
        let (until, moment) = all.entry(request).or_insert((forget, latest));
        (*until, *moment) = (forget, latest.max(*moment));
    }

    /// Whether a copy of this claim may still arrive.
    pub(crate) fn may_arrive(&self, request: RequestId) -> bool {
        self.unanswered().contains_key(&request)
    }

    /// Until when a claim that ends at `now` has to be remembered for its copies' sake. One that has
    /// begun in time may wait in the server meanwhile.
    pub(crate) fn remember(&self, request: RequestId, now: u64) -> Option<u64> {
        let (_, latest) = *self.unanswered().get(&request)?;
        Some(latest.max(now).saturating_add(span(HOLD_UP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_claim_may_be_late_by_the_timeouts_or_half_its_lease() {
        let late = Late::new(Duration::from_secs(5));
        assert_eq!(late.latest(Duration::from_secs(60)), 0);
        late.heard(1000 * SECOND);
        let within = |span, least: u64| {
            let latest = late.latest(span);
            // The machine may have been slow meanwhile.
            (least..least + 60 * SECOND).contains(&latest)
        };
        assert!(within(Duration::from_secs(60), 1010 * SECOND));
        assert!(within(Duration::from_secs(2), 1001 * SECOND));
    }

    #[test]
    fn the_last_copy_counts() {
        let late = Late::new(Duration::from_secs(5));
        let (one, other) = (RequestId::from_u128(1), RequestId::from_u128(2));
        late.no_reply(one, 20 * SECOND);
        late.no_reply(one, 10 * SECOND);
        assert!(late.may_arrive(one) && !late.may_arrive(other));
        assert_eq!(late.remember(one, 0), Some(25 * SECOND));
        assert_eq!(late.remember(one, 100 * SECOND), Some(105 * SECOND));
        assert_eq!(late.remember(other, 0), None);
    }
}
