//! Copies of claims that arrive late: after their client has given up the connection, and perhaps after
//! many others have held the lock. They must never take it.
//!
//! All statements but [`Dialect::take`](crate::Dialect::take) demand the row's version, and a version is
//! never used twice: a copy that arrives after any reply to its claim finds another version. A claim by
//! `take` carries a deadline by the server's clock. The client estimates that clock; a wrong estimate
//! costs a round trip and no safety, because the server decides. If a copy of the claim had no reply, the
//! row keeps a tombstone of the claim until the server's clock has passed the deadline of that copy. Only
//! the client of a claim has a record of its copies, so a claim that another client or time has ended gets a
//! tombstone in any case.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::{BootTime, Clock, RequestId};
use clinch_kit::lock;

use crate::record::span;

/// How long a statement that has begun may take until it has locked its row: the server's clock is read
/// when it begins. Each wait for a lock ends after a second.
const STATEMENT: Duration = Duration::from_secs(5);
/// How long the client remembers a copy without a reply, beyond its deadline, in case the server's clock
/// is set back.
const MEMORY: Duration = Duration::from_secs(600);

/// The copies of this client's claims that may arrive late.
#[derive(Debug)]
pub(crate) struct LateCopies {
    /// How long a reply is waited for.
    timeout: Duration,
    /// The server's clock, and when that reply arrived.
    clock: Mutex<Option<(BootTime, u64)>>,
    /// Claims with a copy that had no reply: when it can be forgotten, and the copy's deadline.
    unanswered: Mutex<HashMap<RequestId, (BootTime, u64)>>,
}

impl LateCopies {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            clock: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }

    /// Records the server's clock from a reply.
    pub(crate) fn saw_clock(&self, now: u64) {
        let seen = Some((Clock::boot().now(), now));
        *lock(&self.clock) = seen;
    }

    /// The latest time, by the server's clock, at which a claim that is sent now may be applied.
    ///
    /// At most half a lease ahead, so that it is not much later than the end of a hold that another
    /// copy got: see [`tombstone_span`](Self::tombstone_span). 0 if the server's clock is unknown.
    pub(crate) fn deadline(&self, lease: Duration) -> u64 {
        let seen = *lock(&self.clock);
        let Some((when, servers)) = seen else {
            return 0;
        };
        let passed = Clock::boot().now().since(when);
        let ahead = self.patience().min(lease / 2);
        servers.saturating_add(span(passed + ahead))
    }

    /// The same for a claim that demands a row as it was read at `now` by the server's clock.
    pub(crate) fn deadline_from(&self, now: u64) -> u64 {
        now.saturating_add(span(self.patience()))
    }

    /// How long a tombstone is kept by clients that do not know the claim's copies.
    ///
    /// Its client sends the next copy after it has waited for a reply to the one before, and none is
    /// applied later than half a lease after it was sent. The client's `timeout` is unknown: it is
    /// assumed to be ours, or less than the lease.
    pub(crate) fn tombstone_span(&self, lease: Duration) -> Duration {
        lease.min(MEMORY) + self.patience() + STATEMENT
    }

    /// No client waits for a reply any more after that.
    fn patience(&self) -> Duration {
        self.timeout * 2
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<RequestId, (BootTime, u64)>> {
        lock(&self.unanswered)
    }

    /// Records that a copy of this claim, with this deadline, had no reply.
    pub(crate) fn no_reply(&self, request: RequestId, deadline: u64) {
        let now = Clock::boot().now();
        let mut all = self.unanswered();
        all.retain(|_, (forget, _)| *forget > now);
        let forget = now + self.patience() + MEMORY;
        let (until, latest) = all.entry(request).or_insert((forget, deadline));
        (*until, *latest) = (forget, deadline.max(*latest));
    }

    /// Whether a copy of this claim may still arrive.
    pub(crate) fn may_arrive(&self, request: RequestId) -> bool {
        self.unanswered().contains_key(&request)
    }

    /// Until when a claim that ends at `now` needs a tombstone for its copies. One that has begun in
    /// time may wait in the server meanwhile.
    pub(crate) fn tombstone_until(&self, request: RequestId, now: u64) -> Option<u64> {
        let (_, deadline) = *self.unanswered().get(&request)?;
        Some(deadline.max(now).saturating_add(span(STATEMENT)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_claim_may_be_late_by_the_timeouts_or_half_its_lease() {
        let late = LateCopies::new(Duration::from_secs(5));
        assert_eq!(late.deadline(Duration::from_secs(60)), 0);
        late.saw_clock(1000 * SECOND);
        let within = |span, least: u64| {
            let deadline = late.deadline(span);
            // The machine may have been slow meanwhile.
            (least..least + 60 * SECOND).contains(&deadline)
        };
        assert!(within(Duration::from_secs(60), 1010 * SECOND));
        assert!(within(Duration::from_secs(2), 1001 * SECOND));
    }

    #[test]
    fn the_last_copy_counts() {
        let late = LateCopies::new(Duration::from_secs(5));
        let (one, other) = (RequestId::from_u128(1), RequestId::from_u128(2));
        late.no_reply(one, 20 * SECOND);
        late.no_reply(one, 10 * SECOND);
        assert!(late.may_arrive(one) && !late.may_arrive(other));
        assert_eq!(late.tombstone_until(one, 0), Some(25 * SECOND));
        assert_eq!(late.tombstone_until(one, 100 * SECOND), Some(105 * SECOND));
        assert_eq!(late.tombstone_until(other, 0), None);
    }
}
