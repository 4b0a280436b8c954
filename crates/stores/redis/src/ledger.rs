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

/// The claims under way, or without a reply.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<RequestId, Sends>>);

/// What was sent for one request.
#[derive(Debug)]
struct Sends {
    /// How many have no reply.
    open: usize,
    /// The latest moment of all of them, by the server's clock in ms.
    latest: u64,
    /// When the last one was sent.
    at: BootTime,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Sends>> {
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
            open: 0,
            latest,
            at: now,
        });
        sends.open += 1;
        sends.at = now;
        sends.latest = sends.latest.max(latest);
        sends.latest
    }

    /// One of its claims has had a definite reply, or was never sent.
    pub(crate) fn answered(&self, request: RequestId) {
        let mut all = self.lock();
        if let Some(sends) = all.get_mut(&request) {
            sends.open = sends.open.saturating_sub(1);
            if sends.open == 0 {
                all.remove(&request);
            }
        }
    }

    /// Until when a copy of this request may be applied; 0 if there is none without a reply.
    pub(crate) fn latest(&self, request: RequestId) -> u64 {
        self.lock().get(&request).map_or(0, |sends| sends.latest)
    }

    /// The server remembers that the request has ended.
    pub(crate) fn ended(&self, request: RequestId) {
        self.lock().remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_copy_without_a_reply_counts() {
        let (ledger, request) = (Ledger::default(), RequestId::from_u128(7));
        let window = Duration::from_millis(10);
        assert_eq!(ledger.sent(request, 40, window), 50);
        // The estimate of the clock went back.
        assert_eq!(ledger.sent(request, 30, window), 50);
        ledger.answered(request);
        assert_eq!(ledger.latest(request), 50);
        ledger.answered(request);
        assert_eq!(ledger.latest(request), 0);
        ledger.sent(request, 60, window);
        ledger.ended(request);
        ledger.answered(request);
        assert_eq!((ledger.latest(request), ledger.lock().len()), (0, 0));
    }

    #[test]
    fn a_claim_is_applied_while_its_reply_may_be_awaited() {
        let seconds = Duration::from_secs;
        assert_eq!(window(seconds(2), seconds(30)), seconds(5));
        assert_eq!(window(seconds(30), seconds(30)), seconds(30));
        assert_eq!(window(seconds(2), Duration::from_millis(50)), seconds(2));
    }
}
