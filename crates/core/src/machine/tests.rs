//! The rules of one name, case by case. Random sequences are in the testkit.

use std::time::Duration;

use super::{NameState, Outcome, Sequence};
use crate::store::{
    Claim, ClaimReply, Ending, EventKind, Evicted, Hold, LostReason, ReleaseReply, RenewReply,
    Renewal,
};
use crate::{BootTime, ErrorKind, Identity, Name};

#[derive(Default)]
struct Counter(u64);

impl Sequence for Counter {
    fn next(&mut self, after: u64) -> u64 {
        self.0 = self.0.max(after) + 1;
        self.0
    }
}

struct Fixture {
    state: NameState,
    sequence: Counter,
    identity: Identity,
    now: BootTime,
    events: Vec<EventKind>,
    woken: Vec<u128>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            state: NameState::new(Name::new("n").unwrap()),
            sequence: Counter::default(),
            identity: Identity::new(),
            now: BootTime::from_nanos(1_000_000_000_000),
            events: Vec::new(),
            woken: Vec::new(),
        }
    }

    fn new_claim(&self, units: u32, limit: u32) -> Claim {
        let (name, lease) = (self.state.name.clone(), Duration::from_secs(10));
        Claim::new(&self.identity, name, lease).with_units(units, limit)
    }

    fn step<T>(
        &mut self,
        f: impl FnOnce(&mut NameState, BootTime, &mut Counter, &mut Outcome) -> T,
    ) -> T {
        let mut out = Outcome::default();
        let reply = f(&mut self.state, self.now, &mut self.sequence, &mut out);
        self.events.extend(out.events.iter().map(|e| e.kind));
        self.woken
            .extend(out.granted.iter().map(|w| w.request.as_u128()));
        reply
    }

    fn claim(&mut self, claim: &Claim) -> ClaimReply {
        self.step(|s, now, seq, out| s.claim(claim, now, seq, out))
            .unwrap()
    }

    fn granted(&mut self, claim: &Claim) -> Hold {
        match self.claim(claim) {
            ClaimReply::Granted(grant) => Hold {
                name: claim.name.clone(),
                request: claim.request,
                seq: grant.seq,
            },
            other => panic!("not granted: {other:?}"),
        }
    }

    fn release(&mut self, hold: &Hold) -> ReleaseReply {
        self.step(|s, now, seq, out| s.release(hold, now, seq, out))
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.step(|s, now, seq, out| s.tick(now, seq, out));
    }
}

#[test]
fn claims_are_granted_in_ticket_order_and_the_next_is_woken() {
    let mut t = Fixture::new();
    let (a, b, c) = (t.new_claim(1, 1), t.new_claim(1, 1), t.new_claim(1, 1));
    let first = t.granted(&a);
    assert!(matches!(t.claim(&b), ClaimReply::Queued(q) if q.ahead == 0));
    assert!(matches!(t.claim(&c), ClaimReply::Queued(q) if q.ahead == 1));
    assert_eq!(t.release(&first), ReleaseReply::Released);
    assert_eq!(t.woken, [b.request.as_u128()], "the next, and nobody else");
    let second = t.granted(&b);
    assert!(second.seq > first.seq);
    assert_eq!(
        t.granted(&b).seq,
        second.seq,
        "asking again gives the same token"
    );
}

#[test]
fn a_waiting_writer_is_not_overtaken_by_readers() {
    let mut t = Fixture::new();
    let (read, write, late) = (
        t.new_claim(1, u32::MAX),
        t.new_claim(u32::MAX, u32::MAX),
        t.new_claim(1, u32::MAX),
    );
    let reader = t.granted(&read);
    assert!(matches!(t.claim(&write), ClaimReply::Queued(_)));
    assert!(matches!(t.claim(&late), ClaimReply::Queued(_)));
    t.release(&reader);
    let writer = t.granted(&write);
    assert!(matches!(t.claim(&late), ClaimReply::Queued(_)));
    t.release(&writer);
    t.granted(&late);
}

#[test]
fn a_try_never_overtakes_and_never_queues() {
    let mut t = Fixture::new();
    let (two, three) = (t.new_claim(2, 3), t.new_claim(3, 3));
    t.granted(&two);
    assert!(matches!(t.claim(&three), ClaimReply::Queued(_)));
    let mut try_one = t.new_claim(1, 3);
    try_one.queue = false;
    assert!(
        matches!(t.claim(&try_one), ClaimReply::Busy(_)),
        "there is room, but not ahead of others"
    );
    assert_eq!(t.state.entries.len(), 2);
}

#[test]
fn another_limit_is_a_mismatch_and_changes_nothing() {
    let mut t = Fixture::new();
    let (five, six) = (t.new_claim(1, 5), t.new_claim(1, 6));
    t.granted(&five);
    let before = t.state.clone();
    let error = t
        .step(|s, now, seq, out| s.claim(&six, now, seq, out))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert_eq!(t.state, before);
}

#[test]
fn lock_delay_follows_an_unclean_end_only() {
    let mut t = Fixture::new();
    let mut a = t.new_claim(1, 1);
    a.lock_delay = Duration::from_secs(5);
    let hold = t.granted(&a);
    t.release(&hold);
    let mut b = t.new_claim(1, 1);
    b.lock_delay = Duration::from_secs(5);
    t.granted(&b);
    let c = t.new_claim(1, 1);
    t.pass(Duration::from_secs(9));
    assert!(matches!(t.claim(&c), ClaimReply::Queued(_)));
    t.pass(Duration::from_secs(2));
    assert!(
        matches!(t.claim(&c), ClaimReply::Queued(_)),
        "expired at 10, delayed until 15"
    );
    t.pass(Duration::from_secs(5));
    match t.claim(&c) {
        ClaimReply::Granted(grant) => {
            assert_eq!(grant.predecessor.unwrap().ending, Ending::Expired)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stale_release_or_a_repeated_one_changes_nothing() {
    let mut t = Fixture::new();
    let (a, b) = (t.new_claim(1, 1), t.new_claim(1, 1));
    let old = t.granted(&a);
    assert!(matches!(t.claim(&b), ClaimReply::Queued(_)));
    t.pass(Duration::from_secs(9));
    t.claim(&b);
    t.pass(Duration::from_secs(2));
    let new = t.granted(&b);
    let before = t.state.clone();
    assert_eq!(t.release(&old), ReleaseReply::WasLost(LostReason::Expired));
    assert_eq!(t.state, before);
    assert_eq!(t.release(&new), ReleaseReply::Released);
    assert_eq!(
        t.release(&new),
        ReleaseReply::Released,
        "the reply may have been lost"
    );
    let forged = Hold {
        seq: new.seq + 1,
        ..new
    };
    assert!(matches!(t.release(&forged), ReleaseReply::WasLost(_)));
}

#[test]
fn a_claim_that_arrives_after_its_withdrawal_is_refused() {
    let mut t = Fixture::new();
    let a = t.new_claim(1, 1);
    t.step(|s, now, seq, out| s.withdraw(&a, now, seq, out));
    assert_eq!(t.claim(&a), ClaimReply::Gone(LostReason::Released));
    assert!(t.state.view(t.now).is_none());
}

#[test]
fn a_dead_head_of_the_queue_is_skipped_after_its_lease() {
    let mut t = Fixture::new();
    let (a, dead, c) = (t.new_claim(1, 1), t.new_claim(1, 1), t.new_claim(1, 1));
    let hold = t.granted(&a);
    t.claim(&dead);
    t.claim(&c);
    for _ in 0..3 {
        t.pass(Duration::from_secs(4));
        let renewal = crate::store::Renewal {
            hold: hold.clone(),
            lease: a.lease,
            value: None,
        };
        t.step(|s, now, seq, out| s.renew(&renewal, now, seq, out));
        t.claim(&c);
    }
    t.release(&hold);
    assert_eq!(t.woken, [c.request.as_u128()]);
}

#[test]
fn a_dead_client_frees_everything_at_once() {
    let mut t = Fixture::new();
    let (a, b) = (t.new_claim(1, 1), t.new_claim(1, 1));
    t.granted(&a);
    t.claim(&b);
    let id = t.identity.info().id;
    t.step(|s, now, seq, out| s.client_died(id, now, seq, out));
    assert!(t.state.entries.is_empty());
    assert_eq!(
        t.events
            .iter()
            .filter(|k| **k == EventKind::Expired)
            .count(),
        2
    );
}

#[test]
fn an_ended_request_is_kept_until_its_moment_however_many_end_after_it() {
    let mut table = Fixture::new();
    let use_once = |table: &mut Fixture| {
        let claim = table.new_claim(1, 1);
        let hold = table.granted(&claim);
        table.release(&hold);
        claim
    };
    let late = use_once(&mut table);
    table
        .state
        .keep(late.request, table.now + Duration::from_secs(5));
    for _ in 0..40 {
        use_once(&mut table);
    }
    assert!(matches!(table.claim(&late), ClaimReply::Gone(_)));
    table.pass(Duration::from_secs(5));
    use_once(&mut table);
    assert_eq!(table.state.ended.len(), 8);
}

/// `keep` follows right after the end of a claim, so its tombstone must still be there, however many are kept.
#[test]
fn any_number_of_ended_requests_can_be_kept() {
    let mut table = Fixture::new();
    let mut late = Vec::new();
    for _ in 0..20 {
        let claim = table.new_claim(1, 1);
        let hold = table.granted(&claim);
        table.release(&hold);
        table
            .state
            .keep(claim.request, table.now + Duration::from_secs(5));
        late.push(claim);
    }
    for claim in &late {
        assert!(matches!(table.claim(claim), ClaimReply::Gone(_)));
    }
}

#[test]
fn a_running_delay_is_shown_and_ended_by_its_own_number_only() {
    let mut table = Fixture::new();
    let claim = Claim {
        lock_delay: Duration::from_secs(60),
        ..table.new_claim(1, 1)
    };
    let hold = table.granted(&claim);
    table.step(|s, now, seq, out| s.evict(Some(hold.seq), now, seq, out));
    let view = table.state.view(table.now).unwrap();
    assert!(view.holders.is_empty() && view.waiters.is_empty());
    assert_eq!(view.delayed[0].token.map(|t| t.seq()), Some(hold.seq));
    assert_eq!(view.delayed_for(), Some(Duration::from_secs(60)));
    let other = table.step(|s, now, seq, out| s.evict(Some(hold.seq + 1), now, seq, out));
    assert_eq!(other, Evicted::default());
    let ended = table.step(|s, now, seq, out| s.evict(Some(hold.seq), now, seq, out));
    assert_eq!((ended.seqs, ended.delays), (vec![], vec![hold.seq]));
    let next = table.new_claim(1, 1);
    let next = table.granted(&next);
    let none = table.step(|s, now, seq, out| s.evict(Some(hold.seq), now, seq, out));
    assert_eq!(none, Evicted::default());
    assert_eq!(table.release(&next), ReleaseReply::Released);
}

#[test]
fn a_release_or_renewal_with_another_number_changes_nothing() {
    let mut table = Fixture::new();
    let claim = table.new_claim(1, 1);
    let hold = table.granted(&claim);
    let other = Hold {
        seq: hold.seq + 1,
        ..hold.clone()
    };
    let renewal = Renewal {
        hold: other.clone(),
        lease: claim.lease,
        value: None,
    };
    let renewed = table.step(|s, now, seq, out| s.renew(&renewal, now, seq, out));
    assert!(matches!(renewed, RenewReply::Lost(_)));
    assert!(!table.release(&other).was_held());
    assert!(table.release(&hold).was_held());
}

#[test]
fn a_renewal_after_the_lease_revives_nothing() {
    let mut table = Fixture::new();
    let claim = table.new_claim(1, 1);
    let hold = table.granted(&claim);
    table.now = table.now + claim.lease;
    let renewal = Renewal {
        hold: hold.clone(),
        lease: claim.lease,
        value: None,
    };
    let renewed = table.step(|s, now, seq, out| s.renew(&renewal, now, seq, out));
    assert_eq!(renewed, RenewReply::Lost(LostReason::Expired));
    assert!(table.state.view(table.now).is_none());
}
