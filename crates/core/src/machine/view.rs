//! Read-only questions about a name.

use std::time::Duration;

use super::{Ended, Entry, NameState, Phase};
use crate::store::{ClaimReply, Freshness, Grant, LockView, PartyView, Queued};
use crate::{BootTime, RequestId};

/// How long an idle name keeps its tombstones: longer than any client waits for a reply.
const RETENTION: Duration = Duration::from_secs(600);

impl NameState {
    /// Whether the hold with this sequence number is still live.
    pub fn check(&self, seq: u64, now: BootTime) -> Freshness {
        let live = |e: &Entry| e.seq() == Some(seq) && e.until > now;
        match self.entries.iter().any(live) {
            true => Freshness::Current,
            false => Freshness::Stale,
        }
    }

    /// The view for operators; `None` if there is no holder, no waiter and no running lock-delay.
    pub fn view(&self, now: BootTime) -> Option<LockView> {
        let live = || self.entries.iter().filter(|e| e.until > now);
        // An expired hold is delayed from its end, even if no step has applied the expiry yet.
        let delayed = |e: &Entry| match e.phase {
            Phase::Delayed { .. } => (e.until > now).then(|| e.view(now)),
            Phase::Held { .. } if e.until <= now && e.until + e.lock_delay > now => {
                Some(PartyView {
                    age: now.since(e.until),
                    lease_left: (e.until + e.lock_delay).since(now),
                    ..e.view(now)
                })
            }
            Phase::Held { .. } | Phase::Waiting => None,
        };
        let delayed: Vec<PartyView> = self.entries.iter().filter_map(delayed).collect();
        let claimed = live().find(|e| !e.is_delayed());
        let limit = match (claimed, delayed.first()) {
            (Some(entry), _) => entry.limit,
            (None, Some(_)) => self.entries.first()?.limit,
            (None, None) => return None,
        };
        Some(LockView {
            name: self.name.clone(),
            limit,
            holders: live()
                .filter(|e| e.seq().is_some())
                .map(|e| e.view(now))
                .collect(),
            waiters: live()
                .filter(|e| e.phase == Phase::Waiting)
                .map(|e| e.view(now))
                .collect(),
            delayed,
        })
    }

    /// Whether the name can be forgotten: no holder, no waiter, no running lock-delay, and all
    /// tombstones are too old to matter.
    pub fn is_forgettable(&self, now: BootTime) -> bool {
        self.entries
            .iter()
            .all(|e| e.until <= now && e.lock_delay.is_zero())
            && self
                .ended
                .iter()
                .all(|e| now.since(e.at) >= RETENTION && e.keep <= now)
    }

    /// The reply that a repeated claim would get at `now`, without changing the state.
    pub fn standing(&self, request: RequestId, now: BootTime) -> ClaimReply {
        let Some(entry) = self.entries.iter().find(|e| e.request == request) else {
            return ClaimReply::Gone(self.reason(request));
        };
        match entry.phase {
            Phase::Held { seq } => ClaimReply::Granted(Grant {
                seq,
                predecessor: self
                    .ended
                    .iter()
                    .rev()
                    .filter(|e| e.seq.is_some_and(|earlier| earlier < seq))
                    .find_map(Ended::predecessor),
            }),
            Phase::Waiting | Phase::Delayed { .. } => ClaimReply::Queued(Queued {
                ahead: self
                    .entries
                    .iter()
                    .filter(|e| e.phase == Phase::Waiting && e.ticket < entry.ticket)
                    .count(),
                retry_after: self.retry_after(now),
                wakes_kept: false,
            }),
        }
    }

    /// Time until units can become free without a request: the first end of a lease or lock-delay.
    pub(super) fn retry_after(&self, now: BootTime) -> Option<Duration> {
        self.entries
            .iter()
            .filter(|e| e.takes_units())
            .map(|e| e.until.since(now))
            .min()
    }
}
