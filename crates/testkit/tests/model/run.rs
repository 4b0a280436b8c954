//! A run of random commands, and what must hold after each of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::blocking::block_on;
use clinch_core::memory::MemoryStore;
use clinch_core::store::{
    Admin, Claim, ClaimReply, Hold, LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Store,
};
use clinch_core::{Clinch, Clock, ErrorKind, Identity, ManualClock, Name, OwnerId};

use super::{LIMIT, NAMES, Shape, Step};

const CLIENTS: usize = 3;

/// Claims on a memory store whose clock stands.
pub(super) struct Run {
    stores: Vec<MemoryStore>,
    hand: Arc<ManualClock>,
    claims: Vec<(usize, Claim)>,
    /// The number that each claim was granted.
    seqs: HashMap<usize, u64>,
    /// The greatest number of each name.
    greatest: HashMap<Name, u64>,
    last: Option<Step>,
}

impl Run {
    pub(super) fn new(shapes: &[Shape]) -> Self {
        let (clock, hand) = Clock::manual();
        let contexts: Vec<OpenContext> = (0..CLIENTS)
            .map(|_| Clinch::context("model").unwrap().with_clock(clock.clone()))
            .collect();
        let first = MemoryStore::new(contexts[0].clone());
        let mut stores: Vec<_> = contexts[1..]
            .iter()
            .map(|c| first.sibling(c.clone()))
            .collect();
        stores.insert(0, first);
        let claim = |(n, (units, lease, delay, queue)): (usize, &Shape)| {
            let identity = &contexts[n % CLIENTS].identity;
            let claim = Claim {
                name: Name::new(NAMES[n % NAMES.len()]).unwrap(),
                request: identity.request(),
                owner: OwnerId::new(format!("owner {n}")),
                client: identity.info().clone(),
                units: *units,
                limit: LIMIT,
                lease: Duration::from_millis(*lease),
                lock_delay: Duration::from_millis(*delay),
                label: None,
                value: None,
                queue: *queue,
            };
            (n % CLIENTS, claim)
        };
        Self {
            claims: shapes.iter().enumerate().map(claim).collect(),
            stores,
            hand,
            seqs: HashMap::new(),
            greatest: HashMap::new(),
            last: None,
        }
    }

    fn store(&self, claim: usize) -> &MemoryStore {
        &self.stores[self.claims[claim].0]
    }

    fn hold(&self, claim: usize, seq: u64) -> Hold {
        let claim = &self.claims[claim].1;
        Hold {
            name: claim.name.clone(),
            request: claim.request,
            seq,
        }
    }

    pub(super) fn views(&self) -> Vec<LockView> {
        block_on(self.stores[0].list("")).unwrap()
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Claim(n) => self.claim(*n),
            Step::Release(n) => self.release(*n),
            Step::Renew(a, b) => self.renew(*a, *b),
            Step::Withdraw(n) => {
                let claim = self.claims[*n].1.clone();
                block_on(self.store(*n).withdraw(&claim)).unwrap();
                let reply = block_on(self.store(*n).claim(&claim)).unwrap();
                assert!(matches!(reply, ClaimReply::Gone(_)), "{reply:?}");
            }
            Step::Evict(n) => {
                let name = Name::new(NAMES[*n]).unwrap();
                let held: Vec<u64> = self.holders(&name).iter().map(|(_, seq)| *seq).collect();
                let mut evicted = block_on(self.stores[0].evict(&name, None)).unwrap().seqs;
                evicted.sort_unstable();
                // A grant that the eviction itself made room for is not among them.
                assert_eq!(evicted, held);
            }
            Step::Forge(n) => self.forge(*n),
            Step::Wait(ms) => self.hand.advance(Duration::from_millis(*ms)),
            Step::Again => {
                if let Some(last) = self.last.take() {
                    self.apply(&last);
                }
            }
        }
        if matches!(step, Step::Claim(_) | Step::Release(_) | Step::Withdraw(_)) {
            self.last = Some(step.clone());
        }
    }

    /// A claim; the same one sent at once again gives the same answer.
    fn claim(&mut self, n: usize) {
        let claim = self.claims[n].1.clone();
        let first = match block_on(self.store(n).claim(&claim)) {
            Ok(reply) => reply,
            Err(error) => panic!("one limit for all, and yet {:?}", error.kind()),
        };
        let again = block_on(self.store(n).claim(&claim)).unwrap();
        match (&first, &again) {
            (ClaimReply::Granted(a), ClaimReply::Granted(b)) => {
                assert_eq!(a.seq, b.seq, "one request, two numbers");
                if let Some(before) = self.seqs.insert(n, a.seq) {
                    assert_eq!(before, a.seq, "one request, two numbers");
                }
            }
            (ClaimReply::Queued(a), ClaimReply::Queued(b)) => assert_eq!(a.ahead, b.ahead),
            (ClaimReply::Busy(_), ClaimReply::Busy(_)) => assert!(!claim.queue),
            (ClaimReply::Gone(a), ClaimReply::Gone(b)) => assert_eq!(a, b),
            other => panic!("the same request, two answers: {other:?}"),
        }
    }

    fn release(&mut self, n: usize) {
        let Some(seq) = self.seqs.get(&n).copied() else {
            return;
        };
        let hold = self.hold(n, seq);
        let held = self.holders(&hold.name).iter().any(|(_, s)| *s == seq);
        let first = block_on(self.store(n).release(&hold)).unwrap();
        assert!(!held || first == ReleaseReply::Released);
        let again = block_on(self.store(n).release(&hold)).unwrap();
        assert_eq!(first, again, "the same release, two answers");
    }

    fn renew(&mut self, a: usize, b: usize) {
        let batch: Vec<(Renewal, bool)> = [a, b]
            .into_iter()
            .filter(|n| self.claims[*n].0 == self.claims[a].0)
            .filter_map(|n| {
                let hold = self.hold(n, *self.seqs.get(&n)?);
                let held = self.holders(&hold.name).iter().any(|(_, s)| *s == hold.seq);
                let lease = self.claims[n].1.lease;
                let renewal = Renewal {
                    hold,
                    lease,
                    value: None,
                };
                Some((renewal, held))
            })
            .collect();
        let renewals: Vec<_> = batch.iter().map(|(renewal, _)| renewal.clone()).collect();
        let replies = block_on(self.store(a).renew(&renewals)).unwrap();
        assert_eq!(replies.len(), batch.len());
        for ((_, held), reply) in batch.iter().zip(replies) {
            assert_eq!(
                *held,
                reply == RenewReply::Held,
                "a renewal created or lost"
            );
        }
    }

    /// Requests with a wrong number change nothing.
    fn forge(&mut self, n: usize) {
        // What has run out is noticed by any step; let it be this one.
        for name in NAMES {
            let name = Name::new(name).unwrap();
            block_on(self.stores[0].evict(&name, Some(0))).unwrap();
        }
        let before = self.views();
        let wrong = self.hold(n, self.greatest.values().max().copied().unwrap_or(0) + 1);
        let reply = block_on(self.store(n).release(&wrong)).unwrap();
        assert!(matches!(reply, ReleaseReply::WasLost(_)));
        let renewal = Renewal::new(wrong, Duration::from_secs(1000));
        let reply = block_on(self.store(n).renew(&[renewal])).unwrap();
        assert!(matches!(reply[..], [RenewReply::Lost(_)]));
        assert_eq!(self.views(), before, "a stale request changed something");
        let claim = &self.claims[n].1;
        if before.iter().any(|view| view.name == claim.name) {
            let other = Claim {
                limit: LIMIT + 1,
                request: Identity::new().request(),
                ..claim.clone()
            };
            let refused = block_on(self.store(n).claim(&other)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Mismatch);
            assert_eq!(self.views(), before, "a refused request changed something");
        }
    }

    /// Holders of a name by owner, with their numbers, in the order of the numbers.
    fn holders(&self, name: &Name) -> Vec<(OwnerId, u64)> {
        let view = block_on(self.stores[0].inspect(name)).unwrap();
        let holders = view.map(|view| view.holders).unwrap_or_default();
        let mut all: Vec<_> = holders
            .into_iter()
            .map(|h| (h.owner, h.token.unwrap().seq()))
            .collect();
        all.sort_by_key(|(_, seq)| *seq);
        all
    }

    pub(super) fn check(&mut self, before: &[LockView]) {
        for view in self.views() {
            let taken: u32 = view.holders.iter().map(|h| h.units).sum();
            assert!(taken <= LIMIT, "{taken} units of {LIMIT}");
            assert!(view.holders.iter().all(|h| !h.lease_left.is_zero()));
            let known = self.greatest.get(&view.name).copied().unwrap_or(0);
            let old = before.iter().find(|b| b.name == view.name);
            for holder in &view.holders {
                let seq = holder.token.unwrap().seq();
                let had = |b: &LockView| b.holders.iter().any(|h| h.token == holder.token);
                assert!(seq > known || old.is_some_and(had), "a number did not rise");
                let greatest = self.greatest.entry(view.name.clone()).or_default();
                *greatest = seq.max(*greatest);
            }
            let Some(old) = old else { continue };
            // Who waited before and still waits is in the same order.
            let place = |owner: &OwnerId| old.waiters.iter().position(|w| w.owner == *owner);
            let still: Vec<_> = view
                .waiters
                .iter()
                .filter_map(|w| place(&w.owner))
                .collect();
            assert!(still.is_sorted(), "the queue changed its order");
            // Nobody who came later holds while one from before still waits for it.
            if let Some(first) = still.first() {
                let overtaken = view.holders.iter().filter_map(|h| place(&h.owner));
                assert!(overtaken.into_iter().all(|p| p < *first), "overtaken");
            }
        }
    }

    pub(super) fn finish(mut self) {
        for n in 0..self.claims.len() {
            let claim = self.claims[n].1.clone();
            block_on(self.store(n).withdraw(&claim)).unwrap();
        }
        self.check(&[]);
        let idle = |view: &LockView| view.holders.is_empty() && view.waiters.is_empty();
        assert!(self.views().iter().all(idle), "something is left");
        // Lock-delays end by themselves: then everything is free.
        self.hand.advance(Duration::from_secs(1));
        for (n, name) in NAMES.iter().enumerate() {
            let mut claim = self.claims[n].1.clone();
            claim.request = Identity::new().request();
            (claim.units, claim.queue) = (LIMIT, false);
            claim.name = Name::new(name).unwrap();
            let reply = block_on(self.stores[0].claim(&claim)).unwrap();
            assert!(matches!(reply, ClaimReply::Granted(_)), "{reply:?}");
        }
    }
}
