//! From when the lease of a pushed grant counts.

use std::time::Duration;

use super::settings::still_valid;
use crate::BootTime;

/// Lower bound on when a pushed grant can have been issued; its lease counts from here.
///
/// A grant is never older than the first request of its claim, so that send time is a lower bound. A
/// later request is one only if no grant was issued before it. The reply "queued" proves that, but
/// only while an earlier grant would still be valid. After that, the store may have granted the claim,
/// let the lease expire, forgotten both, and queued the repeated request as a new one. The push of
/// the old grant may still arrive then.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EarliestGrant {
    /// No grant was issued before this moment; `None` until the claim is first sent.
    not_before: Option<BootTime>,
    /// Whether the store may have forgotten an earlier grant of this claim: a push may then be old.
    ambiguous: bool,
}

impl EarliestGrant {
    /// The claim is about to be sent.
    pub(super) fn sending(&mut self, now: BootTime) {
        self.not_before.get_or_insert(now);
    }

    /// At `now` the store has answered "queued" to the request of `sent`: no grant by then.
    pub(super) fn queued(&mut self, sent: BootTime, lease: Duration, now: BootTime) {
        match self.not_before {
            Some(not_before) if not_before < sent && !still_valid(not_before, lease, now) => {
                self.ambiguous = true;
            }
            _ => self.not_before = Some(sent),
        }
    }

    /// Start of the lease of a grant that is pushed at `now`. `None` if the push must not be used: the
    /// lease would be over, or the grant may be an old one. The claim is then sent again.
    pub(super) fn lease_start(&self, lease: Duration, now: BootTime) -> Option<BootTime> {
        let not_before = self.not_before.filter(|_| !self.ambiguous)?;
        still_valid(not_before, lease, now).then_some(not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos(seconds * 1_000_000_000)
    }

    fn sent(seconds: u64) -> EarliestGrant {
        let mut bound = EarliestGrant::default();
        bound.sending(at(seconds));
        bound
    }

    #[test]
    fn a_grant_is_never_older_than_the_first_request() {
        assert_eq!(EarliestGrant::default().lease_start(LEASE, at(1)), None);
        assert_eq!(sent(1).lease_start(LEASE, at(2)), Some(at(1)));
        assert_eq!(sent(1).lease_start(LEASE, at(11)), None);
    }

    #[test]
    fn a_repeat_answered_in_time_moves_the_bound() {
        let mut bound = sent(1);
        bound.queued(at(1), LEASE, at(2));
        for second in [5, 12, 18] {
            bound.sending(at(second));
            bound.queued(at(second), LEASE, at(second + 1));
        }
        assert_eq!(bound.lease_start(LEASE, at(20)), Some(at(18)));
    }

    /// The first reply took longer than the lease: a push after it is too late in any case.
    #[test]
    fn a_first_answer_may_be_late() {
        let mut bound = sent(1);
        bound.queued(at(1), LEASE, at(30));
        assert_eq!(bound.lease_start(LEASE, at(31)), None);
    }

    /// Granted, expired and forgotten between two requests; the push of that grant arrives afterwards.
    #[test]
    fn a_repeat_after_a_lease_makes_pushes_ambiguous() {
        let mut bound = sent(1);
        bound.queued(at(1), LEASE, at(2));
        bound.queued(at(12), LEASE, at(13));
        assert_eq!(bound.lease_start(LEASE, at(14)), None);
        // They stay ambiguous: the old push may arrive at any time.
        bound.queued(at(15), LEASE, at(16));
        assert_eq!(bound.lease_start(LEASE, at(17)), None);
    }

    /// Sent in time, but answered when an earlier grant could have expired.
    #[test]
    fn a_late_answer_to_a_repeat_is_no_proof() {
        let mut bound = sent(1);
        bound.queued(at(1), LEASE, at(2));
        bound.queued(at(9), LEASE, at(12));
        assert_eq!(bound.lease_start(LEASE, at(13)), None);
    }

    /// The reply to the first request was lost: the claim may have been queued and granted.
    #[test]
    fn an_unanswered_first_request_counts() {
        let mut bound = sent(1);
        bound.sending(at(12));
        bound.queued(at(12), LEASE, at(13));
        assert_eq!(bound.lease_start(LEASE, at(14)), None);
        let mut bound = sent(1);
        bound.queued(at(4), LEASE, at(5));
        assert_eq!(bound.lease_start(LEASE, at(6)), Some(at(4)));
    }
}
