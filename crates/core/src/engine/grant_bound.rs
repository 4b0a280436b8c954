//! From when a grant is counted that the store pushes to a waiter.

use std::time::Duration;

use super::acquire::still_valid;
use crate::BootTime;

/// What a waiter knows of the time before a pushed grant was made.
///
/// A grant is made after the first word of its claim, so it can always be counted from there. Counting
/// it from a later word needs a proof that it was not made before: the answer "queued" is one, but
/// only while a grant of before could not have run out already. After that, the store may have
/// granted the claim, ended its lease and forgotten both, and have queued the repeat as if it were
/// new; a word about the old grant may still arrive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Heard {
    /// No grant was made before this; `None` as long as nothing was sent.
    since: Option<BootTime>,
    /// Whether the store may have begun anew with this claim.
    doubtful: bool,
}

impl Heard {
    /// The claim is about to be sent.
    pub(super) fn sending(&mut self, now: BootTime) {
        self.since.get_or_insert(now);
    }

    /// What was sent at `sent` is answered at `now`: there is no grant.
    pub(super) fn queued(&mut self, sent: BootTime, lease: Duration, now: BootTime) {
        match self.since {
            Some(since) if since < sent && !still_valid(since, lease, now) => self.doubtful = true,
            _ => self.since = Some(sent),
        }
    }

    /// From when a grant that is pushed at `now` is counted. `None` when it must be asked for:
    /// it would be over, or may be an old one.
    pub(super) fn counted_from(&self, lease: Duration, now: BootTime) -> Option<BootTime> {
        let since = self.since.filter(|_| !self.doubtful)?;
        still_valid(since, lease, now).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos(seconds * 1_000_000_000)
    }

    fn sent(seconds: u64) -> Heard {
        let mut heard = Heard::default();
        heard.sending(at(seconds));
        heard
    }

    #[test]
    fn nothing_is_granted_before_it_was_asked_for() {
        assert_eq!(Heard::default().counted_from(LEASE, at(1)), None);
        assert_eq!(sent(1).counted_from(LEASE, at(2)), Some(at(1)));
        assert_eq!(sent(1).counted_from(LEASE, at(11)), None);
    }

    #[test]
    fn a_repeat_answered_in_time_moves_it_on() {
        let mut heard = sent(1);
        heard.queued(at(1), LEASE, at(2));
        for second in [5, 12, 18] {
            heard.sending(at(second));
            heard.queued(at(second), LEASE, at(second + 1));
        }
        assert_eq!(heard.counted_from(LEASE, at(20)), Some(at(18)));
    }

    /// The first answer took longer than the lease: what is pushed then is late in any case.
    #[test]
    fn a_first_answer_may_be_late() {
        let mut heard = sent(1);
        heard.queued(at(1), LEASE, at(30));
        assert_eq!(heard.counted_from(LEASE, at(31)), None);
    }

    /// Granted, run out and forgotten between two words: the word of that grant comes afterwards.
    #[test]
    fn a_repeat_after_a_lease_makes_pushes_doubtful() {
        let mut heard = sent(1);
        heard.queued(at(1), LEASE, at(2));
        heard.queued(at(12), LEASE, at(13));
        assert_eq!(heard.counted_from(LEASE, at(14)), None);
        // And they stay so: the old word may take its time.
        heard.queued(at(15), LEASE, at(16));
        assert_eq!(heard.counted_from(LEASE, at(17)), None);
    }

    /// Sent in time, but answered when the grant could have run out.
    #[test]
    fn a_late_answer_to_a_repeat_is_no_proof() {
        let mut heard = sent(1);
        heard.queued(at(1), LEASE, at(2));
        heard.queued(at(9), LEASE, at(12));
        assert_eq!(heard.counted_from(LEASE, at(13)), None);
    }

    /// The reply to the first was lost: it may have been queued, and granted.
    #[test]
    fn an_unanswered_first_word_counts() {
        let mut heard = sent(1);
        heard.sending(at(12));
        heard.queued(at(12), LEASE, at(13));
        assert_eq!(heard.counted_from(LEASE, at(14)), None);
        let mut heard = sent(1);
        heard.queued(at(4), LEASE, at(5));
        assert_eq!(heard.counted_from(LEASE, at(6)), Some(at(4)));
    }
}
