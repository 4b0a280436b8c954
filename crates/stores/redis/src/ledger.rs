//! Claims that were sent and have no reply: until when a server may still apply them.
//!
//! A reply that does not come says nothing: the claim may be in a buffer on its way, and arrive after its
//! request has ended. So each claim carries the latest moment, by the clock of its server, at which it may
//! be applied as a new one. The release or the withdrawal of its request passes on the latest moment of all
//! copies without a reply, and the server remembers the ended request until then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, Error, ErrorKind, RequestId};

use crate::record::millis;

/// How many requests are remembered before old ones are looked for.
const MANY: usize = 1024;
/// After this time no copy is under way any more: its connection has long been closed.
const OLD: Duration = Duration::from_secs(3600);
/// A claim that is under way for longer is lost, and nobody has noticed.
const STUCK: Duration = Duration::from_secs(60);
/// What a claim gets in addition to the time in which its reply must come.
const MARGIN: Duration = Duration::from_secs(1);
/// A claim with a short lease has at least this time, so that an estimate of the server's clock that is
/// not exact costs no further trip.
const SHORTEST: Duration = Duration::from_secs(2);

/// For how long after it is made a claim may be applied: while its sender may wait for the reply. It may
/// wait for its turn, too, so that is twice the timeout. After its lease it is of no use.
pub(crate) fn window(timeout: Duration, lease: Duration) -> Duration {
    (timeout * 2 + MARGIN).min(lease.max(SHORTEST))
}

/// How often a claim is sent that the server finds too late.
pub(crate) const TRIES: u32 = 5;

/// Why it is not sent once more.
pub(crate) fn too_late() -> Error {
    let text = "the claim reaches the server too late each time";
    Error::new(ErrorKind::Unreachable, text).with_advice("is the network, or the server, slow?")
}

/// The claims under way, or without a reply, and the ends of requests that wait for them.
#[derive(Debug)]
pub(crate) struct Ledger<E = ()>(Mutex<HashMap<RequestId, Sends<E>>>);

impl<E> Default for Ledger<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// What was sent for one request.
#[derive(Debug)]
struct Sends<E> {
    /// How many are under way: they will have a reply, or be lost, before long.
    under_way: usize,
    /// Whether any of them was lost: it may still arrive.
    lost: bool,
    /// The latest moment of all of them, by the server's clock in ms.
    latest: u64,
    /// When the last one was sent.
    at: BootTime,
    /// The ends of this request that are to be sent when none is under way.
    ends: Vec<E>,
}

impl<E> Ledger<E> {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Sends<E>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is about to be sent, and it is `time` at the server as far as is known. Returns until when it
    /// may be applied: for this window, or until the moment of an earlier copy without a reply if that is
    /// later. If the time is not known (0) it is refused at once, and the refusal says the time.
    pub(crate) fn sent(&self, request: RequestId, time: u64, window: Duration) -> u64 {
        let latest = match time {
            0 => 0,
            time => time + u64::from(millis(window)),
        };
        let now = Clock::boot().now();
        let mut all = self.lock();
        if all.len() >= MANY {
            all.retain(|_, sends| now.since(sends.at) < OLD);
        }
        let sends = all.entry(request).or_insert(Sends {
            under_way: 0,
            lost: false,
            latest,
            at: now,
            ends: Vec::new(),
        });
        sends.under_way += 1;
        sends.at = now;
        sends.latest = sends.latest.max(latest);
        sends.latest
    }

    /// One of its claims is not under way any more: it has had a definite reply, or is lost. Returns the ends
    /// that have waited for it, and until when the server must remember them.
    pub(crate) fn resolved(&self, request: RequestId, lost: bool) -> (Vec<E>, u64) {
        let mut all = self.lock();
        let Some(sends) = all.get_mut(&request) else {
            return (Vec::new(), 0);
        };
        sends.under_way = sends.under_way.saturating_sub(1);
        sends.lost |= lost;
        if sends.under_way > 0 {
            return (Vec::new(), 0);
        }
        let ends = std::mem::take(&mut sends.ends);
        let keep = sends.keep();
        if keep == 0 {
            all.remove(&request);
        }
        (ends, keep)
    }

    /// A request is to end. It waits for claims under way: their replies come on the same connection before
    /// its own could, and if one is lost, the server must be asked to remember the end for longer. Gives it
    /// back, with until when the server must remember it, if it need not wait.
    pub(crate) fn end(&self, request: RequestId, end: E) -> Option<(E, u64)> {
        match self.lock().get_mut(&request) {
            None => Some((end, 0)),
            Some(sends) => {
                let stuck = Clock::boot().now().since(sends.at) > STUCK;
                if sends.under_way > 0 && !stuck {
                    sends.ends.push(end);
                    return None;
                }
                Some((end, sends.latest))
            }
        }
    }

    /// Until when a copy of this request may be applied; 0 if all have had a reply.
    pub(crate) fn latest(&self, request: RequestId) -> u64 {
        self.lock().get(&request).map_or(0, |sends| sends.latest)
    }

    /// The server remembers that the request has ended.
    pub(crate) fn ended(&self, request: RequestId) {
        let mut all = self.lock();
        if all.get(&request).is_some_and(|sends| sends.ends.is_empty()) {
            all.remove(&request);
        }
    }
}

impl<E> Sends<E> {
    fn keep(&self) -> u64 {
        match self.lost {
            true => self.latest,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(10);
    fn request() -> RequestId {
        RequestId::from_u128(7)
    }

    #[test]
    fn the_latest_copy_without_a_reply_counts() {
        let ledger = Ledger::<()>::default();
        assert_eq!(ledger.sent(request(), 40, WINDOW), 50);
        // The estimate of the clock went back.
        assert_eq!(ledger.sent(request(), 30, WINDOW), 50);
        ledger.resolved(request(), true);
        ledger.resolved(request(), false);
        assert_eq!(ledger.latest(request()), 50);
        assert_eq!(ledger.end(request(), ()), Some(((), 50)));
        ledger.ended(request());
        assert_eq!(ledger.end(request(), ()), Some(((), 0)));
        ledger.sent(request(), 60, WINDOW);
        ledger.resolved(request(), false);
        assert_eq!((ledger.latest(request()), ledger.lock().len()), (0, 0));
    }

    #[test]
    fn an_end_waits_for_what_is_under_way() {
        for (lost, keep) in [(false, 0), (true, 50)] {
            let ledger = Ledger::default();
            ledger.sent(request(), 40, WINDOW);
            ledger.sent(request(), 40, WINDOW);
            assert_eq!(ledger.end(request(), 'a'), None);
            assert_eq!(ledger.resolved(request(), lost), (vec![], 0));
            assert_eq!(ledger.end(request(), 'b'), None);
            assert_eq!(ledger.resolved(request(), false), (vec!['a', 'b'], keep));
        }
    }

    #[test]
    fn a_claim_is_applied_while_its_reply_may_be_awaited() {
        let seconds = Duration::from_secs;
        assert_eq!(window(seconds(2), seconds(30)), seconds(5));
        assert_eq!(window(seconds(30), seconds(30)), seconds(30));
        assert_eq!(window(seconds(2), Duration::from_millis(50)), seconds(2));
    }
}
