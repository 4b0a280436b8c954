//! The ledger of this client's claims: live ones, and how recent ones ended.
//!
//! Engines that forget a claim with its key need it: a repeated request must find the claim of the
//! first one, and must never create it again after it ended.
//!
//! ```
//! # use std::time::Duration;
//! use clinch_core::{Clock, Identity, LostReason};
//! use clinch_kit::ledger::Ledger;
//! let request = Identity::new().request();
//! let ledger = Ledger::new(Clock::boot(), Duration::from_secs(60));
//! assert_eq!(ledger.enter(request, || "key 1"), Ok("key 1"));
//! assert_eq!(ledger.enter(request, || "key 2"), Ok("key 1")); // a repeated request
//! assert_eq!(ledger.end(request, |_| LostReason::Released), Some("key 1"));
//! assert_eq!(ledger.enter(request, || "key 3"), Err(LostReason::Released));
//! ```

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use clinch_core::{BootTime, Clock, RequestId};

use crate::lock;

/// The latest ends, which are remembered however old they are.
const LATEST: usize = 4096;

/// Claims of this client: `L` describes a live one, `E` how one ended.
///
/// `L` is cloned out; where several tasks change an entry, it is an `Arc`.
#[derive(Debug)]
pub struct Ledger<L, E> {
    clock: Clock,
    remember: Duration,
    claims: Mutex<Claims<L, E>>,
}

#[derive(Debug)]
struct Claims<L, E> {
    live: HashMap<RequestId, L>,
    ended: HashMap<RequestId, E>,
    /// The ended ones, oldest first.
    order: VecDeque<(BootTime, RequestId)>,
}

impl<L: Clone, E: Clone> Ledger<L, E> {
    /// An empty ledger. An end is remembered for the time `remember`, and beyond that while it is among
    /// the latest 4096.
    pub fn new(clock: Clock, remember: Duration) -> Self {
        let claims = Claims {
            live: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
        };
        Self {
            clock,
            remember,
            claims: Mutex::new(claims),
        }
    }

    /// The live claim of this request, made by `new` if there is none; `Err` if it has ended.
    ///
    /// `new` runs while the ledger is locked: it must not use the ledger.
    pub fn enter(&self, request: RequestId, new: impl FnOnce() -> L) -> Result<L, E> {
        let mut claims = lock(&self.claims);
        match claims.ended.get(&request) {
            Some(end) => Err(end.clone()),
            None => Ok(claims.live.entry(request).or_insert_with(new).clone()),
        }
    }

    /// The live claim of this request.
    pub fn get(&self, request: RequestId) -> Option<L> {
        lock(&self.claims).live.get(&request).cloned()
    }

    /// Changes a live claim; `None` if there is none. `change` must not use the ledger.
    pub fn update<T>(&self, request: RequestId, change: impl FnOnce(&mut L) -> T) -> Option<T> {
        lock(&self.claims).live.get_mut(&request).map(change)
    }

    /// Ends a claim and returns it, if it was live. The first end of a request is the one that is
    /// remembered; a request that was never live can be ended too, and can then never be entered.
    ///
    /// `end` gets the claim that was live, and must not use the ledger.
    pub fn end(&self, request: RequestId, end: impl FnOnce(Option<&L>) -> E) -> Option<L> {
        let now = self.clock.now();
        let mut claims = lock(&self.claims);
        let live = claims.live.remove(&request);
        if let Entry::Vacant(place) = claims.ended.entry(request) {
            place.insert(end(live.as_ref()));
            claims.order.push_back((now, request));
            claims.forget_old(now, self.remember);
        }
        live
    }

    /// How the claim of this request ended, if it did and that is still remembered.
    pub fn ended(&self, request: RequestId) -> Option<E> {
        lock(&self.claims).ended.get(&request).cloned()
    }

    /// Removes a live claim of which nothing is at the store: its request can be entered again.
    pub fn forget(&self, request: RequestId) -> Option<L> {
        self.forget_if(request, |_| true)
    }

    /// The same if `condition` holds, which must not use the ledger.
    pub fn forget_if(&self, request: RequestId, condition: impl FnOnce(&L) -> bool) -> Option<L> {
        let mut claims = lock(&self.claims);
        let forget = claims.live.get(&request).is_some_and(condition);
        forget.then(|| claims.live.remove(&request)).flatten()
    }

    /// All live claims, in no particular order.
    pub fn live(&self) -> Vec<L> {
        lock(&self.claims).live.values().cloned().collect()
    }

    /// Whether `condition` holds for any live claim; it must not use the ledger.
    pub fn any(&self, condition: impl FnMut(&L) -> bool) -> bool {
        lock(&self.claims).live.values().any(condition)
    }
}

impl<L, E> Claims<L, E> {
    fn forget_old(&mut self, now: BootTime, remember: Duration) {
        while self.order.len() > LATEST
            && let Some((at, oldest)) = self.order.front().copied()
            && now.since(at) > remember
        {
            self.order.pop_front();
            self.ended.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use clinch_core::Identity;

    use super::*;

    const REMEMBER: Duration = Duration::from_secs(60);

    #[test]
    fn a_claim_is_live_until_it_ends_and_never_again() {
        let (ids, ledger) = (Identity::new(), Ledger::new(Clock::boot(), REMEMBER));
        let request = ids.request();
        assert_eq!(ledger.enter(request, || 1), Ok(1));
        assert_eq!(
            ledger.update(request, |claim| std::mem::replace(claim, 2)),
            Some(1)
        );
        assert_eq!(ledger.enter(request, || 3), Ok(2));
        assert!(ledger.any(|claim| *claim == 2) && !ledger.any(|claim| *claim == 3));
        assert_eq!(ledger.live(), [2]);

        assert_eq!(ledger.end(request, |live| (live.copied(), 'a')), Some(2));
        assert_eq!(ledger.end(request, |live| (live.copied(), 'b')), None);
        assert_eq!(ledger.ended(request), Some((Some(2), 'a')));
        assert_eq!(ledger.enter(request, || 4), Err((Some(2), 'a')));
        assert_eq!(
            (ledger.get(request), ledger.update(request, |_| ())),
            (None, None)
        );
        assert!(ledger.live().is_empty());

        let never = ids.request();
        assert_eq!(ledger.end(never, |live| (live.copied(), 'c')), None);
        assert_eq!(ledger.enter(never, || 5), Err((None, 'c')));
    }

    #[test]
    fn a_forgotten_claim_can_be_entered_again() {
        let request = Identity::new().request();
        let ledger: Ledger<i32, ()> = Ledger::new(Clock::boot(), REMEMBER);
        ledger.enter(request, || 1).unwrap();
        assert_eq!(ledger.forget_if(request, |claim| *claim == 2), None);
        assert_eq!(ledger.get(request), Some(1));
        assert_eq!(ledger.forget_if(request, |claim| *claim == 1), Some(1));
        assert_eq!(ledger.forget(request), None);
        assert_eq!(ledger.enter(request, || 2), Ok(2));
    }

    #[test]
    fn an_end_is_forgotten_when_it_is_old_and_many_are_newer() {
        let (ids, (clock, time)) = (Identity::new(), Clock::manual());
        let ledger: Ledger<(), usize> = Ledger::new(clock, REMEMBER);
        let requests: Vec<_> = (0..LATEST + 2).map(|_| ids.request()).collect();
        let end = |at: usize| ledger.end(requests[at], |_| at);
        (0..LATEST).for_each(|at| assert!(end(at).is_none()));
        time.advance(REMEMBER);
        end(LATEST);
        assert_eq!(ledger.ended(requests[0]), Some(0), "it is not old enough");
        time.advance(Duration::from_millis(1));
        end(LATEST + 1);
        assert_eq!(ledger.ended(requests[0]), None);
        assert_eq!(ledger.ended(requests[1]), None);
        assert_eq!(ledger.ended(requests[2]), Some(2), "it is among the latest");
    }
}
