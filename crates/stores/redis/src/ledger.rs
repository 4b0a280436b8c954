//! Ledger of this client's claims that are in flight or have no reply: until when a server may apply them.
//!
//! A missing reply proves nothing: the claim may be in a network buffer, and arrive after its request has
//! ended. So each claim carries the latest time, by the clock of its server, at which it may be applied as
//! a new one. The release or withdrawal of its request carries the latest time of all copies without a
//! reply, and the server remembers the ended request until then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, Error, ErrorKind, RequestId};

use crate::record::millis;

/// With this many requests, old ones are removed.
const MANY: usize = 1024;
/// After this time no copy is in transit any more: its connection was closed long before.
const OLD: Duration = Duration::from_secs(3600);
/// A claim that is in flight for longer is lost.
const STUCK: Duration = Duration::from_secs(60);
/// Added to the time in which the reply to a claim must arrive.
const MARGIN: Duration = Duration::from_secs(1);
/// The minimum for a claim with a short lease, so that an inexact estimate of the server's clock costs
/// no further round trip.
const SHORTEST: Duration = Duration::from_secs(2);

/// How long after it is made a claim may be applied: while its sender may await the reply. It may be
/// queued first, so that is twice the timeout. After its lease a claim is of no use.
pub(crate) fn window(timeout: Duration, lease: Duration) -> Duration {
    (timeout * 2 + MARGIN).min(lease.max(SHORTEST))
}

/// How often a claim is sent that the server refuses as too late.
pub(crate) const TRIES: u32 = 5;

/// The error after the last attempt.
pub(crate) fn too_late() -> Error {
    let text = "the claim reaches the server too late each time";
    Error::new(ErrorKind::Unreachable, text).with_advice("is the network, or the server, slow?")
}

/// Claims in flight or without a reply, and the ends of requests that wait for them; see the module.
#[derive(Debug)]
pub(crate) struct Ledger<E = ()>(Mutex<HashMap<RequestId, Sends<E>>>);

impl<E> Default for Ledger<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The copies sent for one request.
#[derive(Debug)]
struct Sends<E> {
    /// How many are in flight: each will have a reply, or be lost, before long.
    in_flight: usize,
    /// Whether any was lost: it may still arrive.
    lost: bool,
    /// The latest time at which any may be applied, by the server's clock in ms.
    latest: u64,
    /// When the last one was sent.
    at: BootTime,
    /// The ends of this request, to be sent when none is in flight.
    ends: Vec<E>,
}

impl<E> Ledger<E> {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Sends<E>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a claim that is about to be sent, while the server's clock is estimated at `time`. Returns
    /// until when it may be applied: for this window, or until the time of an earlier copy without a reply
    /// if that is later. If the clock is unknown (0) the server refuses the claim, and its reply has the time.
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
            in_flight: 0,
            lost: false,
            latest,
            at: now,
            ends: Vec::new(),
        });
        sends.in_flight += 1;
        sends.at = now;
        sends.latest = sends.latest.max(latest);
        sends.latest
    }

    /// Records that one of its claims is not in flight any more: it has a definite reply, or is lost. Returns
    /// the ends that waited for it, and until when the server must remember them.
    pub(crate) fn resolved(&self, request: RequestId, lost: bool) -> (Vec<E>, u64) {
        let mut all = self.lock();
        let Some(sends) = all.get_mut(&request) else {
            return (Vec::new(), 0);
        };
        sends.in_flight = sends.in_flight.saturating_sub(1);
        sends.lost |= lost;
        if sends.in_flight > 0 {
            return (Vec::new(), 0);
        }
        let ends = std::mem::take(&mut sends.ends);
        let keep = sends.keep();
        if keep == 0 {
            all.remove(&request);
        }
        (ends, keep)
    }

    /// Ends a request. The end is kept back while claims are in flight: if one of them is lost, the server
    /// must remember the end for longer. Returns the end if it can be sent now, and until when the server
    /// must remember it.
    pub(crate) fn end(&self, request: RequestId, end: E) -> Option<(E, u64)> {
        match self.lock().get_mut(&request) {
            None => Some((end, 0)),
            Some(sends) => {
                let stuck = Clock::boot().now().since(sends.at) > STUCK;
                if sends.in_flight > 0 && !stuck {
                    sends.ends.push(end);
                    return None;
                }
                Some((end, sends.latest))
            }
        }
    }

    /// Until when a copy of this request may be applied; 0 if all have a reply.
    pub(crate) fn latest(&self, request: RequestId) -> u64 {
        self.lock().get(&request).map_or(0, |sends| sends.latest)
    }

    /// Records that the server remembers the end of this request.
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
    fn an_end_waits_for_claims_in_flight() {
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
