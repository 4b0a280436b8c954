//! The steps of one name.

use std::time::Duration;

use super::{Ended, Entry, Outcome, Phase, Sequence, Woken};
use crate::store::{
    Busy, Claim, ClaimReply, Ending, EventKind, Evicted, Freshness, Grant, Hold, LockView,
    LostReason, PartyView, Predecessor, Queued, ReleaseReply, RenewReply, Renewal,
};
use crate::{BootTime, ClientId, Name, RequestId, Result};

/// How many ended claims a name remembers.
const REMEMBERED: usize = 8;
/// For how long an idle name remembers them: longer than any reply is waited for.
const RETENTION: Duration = Duration::from_secs(600);

/// The claims on one name.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # use clinch_core::{Clinch, Name};
/// # let context = Clinch::context("app")?;
/// # let lease = std::time::Duration::from_secs(30);
/// # let claim = clinch_core::store::Claim::new(&context.identity, Name::new("a")?, lease);
/// use clinch_core::machine::{NameState, Outcome, Sequence};
/// use clinch_core::{BootTime, ErrorKind};
/// # struct Counter(u64);
/// # impl Sequence for Counter {
/// #     fn next(&mut self, after: u64) -> u64 { self.0 = self.0.max(after) + 1; self.0 }
/// # }
/// let (mut state, mut numbers) = (NameState::new(claim.name.clone()), Counter(0));
/// let (now, mut out) = (BootTime::from_nanos(0), Outcome::default());
/// state.claim(&claim, now, &mut numbers, &mut out)?;
/// assert_eq!(state.view(now).unwrap().holders.len(), 1);
/// let other = claim.another(&context.identity).with_units(1, 5);
/// let error = state.claim(&other, now, &mut numbers, &mut out).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Mismatch); // a mutex here, a semaphore there
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameState {
    /// The name.
    pub name: Name,
    /// Claims that hold, wait or are delayed, in ticket order.
    pub entries: Vec<Entry>,
    /// Claims that ended lately, oldest first.
    pub ended: Vec<Ended>,
    /// The last sequence number given for this name.
    pub last_seq: u64,
}

impl NameState {
    /// A name that nobody has claimed yet.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            entries: Vec::new(),
            ended: Vec::new(),
            last_seq: 0,
        }
    }

    /// Handles a claim; see [`Store::claim`](crate::store::Store::claim).
    pub fn claim(
        &mut self,
        claim: &Claim,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) -> Result<ClaimReply> {
        self.expire(now, out);
        if let Some(entry) = self.entries.iter_mut().find(|e| e.request == claim.request) {
            if entry.is_delayed() {
                return Ok(ClaimReply::Gone(self.reason(claim.request)));
            }
            entry.until = entry.until.max(now + claim.lease);
        } else if self.ended.iter().any(|e| e.request == claim.request) {
            return Ok(ClaimReply::Gone(self.reason(claim.request)));
        } else {
            self.check_limit(claim)?;
            let ticket = self.entries.iter().map(|e| e.ticket).max().unwrap_or(0) + 1;
            self.entries.push(Entry::arriving(claim, ticket, now));
            if !self.fits_now(ticket) {
                if !claim.queue {
                    self.entries.pop();
                    return Ok(ClaimReply::Busy(Busy {
                        retry_after: self.retry_after(now),
                    }));
                }
                if let Some(entry) = self.entries.last() {
                    out.events.push(entry.event(EventKind::Queued, &self.name));
                }
            }
        }
        self.settle(now, sequence, out);
        // The claimant gets its grant as the reply, not as a wake.
        if let Some(at) = out.granted.iter().position(|w| w.request == claim.request) {
            return Ok(ClaimReply::Granted(out.granted.swap_remove(at).grant));
        }
        Ok(self.standing(claim.request, now))
    }

    /// Handles a renewal; see [`Store::renew`](crate::store::Store::renew).
    pub fn renew(
        &mut self,
        renewal: &Renewal,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) -> RenewReply {
        self.expire(now, out);
        let hold = &renewal.hold;
        let held = self.entries.iter_mut().find(|e| e.is(hold));
        let reply = match held {
            Some(entry) => {
                entry.lease = renewal.lease;
                entry.until = now + renewal.lease;
                if let Some(value) = &renewal.value {
                    entry.value = Some(value.clone());
                    out.events
                        .push(entry.event(EventKind::Published, &self.name));
                }
                RenewReply::Held
            }
            None => RenewReply::Lost(self.reason(hold.request)),
        };
        self.settle(now, sequence, out);
        reply
    }

    /// Handles a release; see [`Store::release`](crate::store::Store::release).
    pub fn release(
        &mut self,
        hold: &Hold,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) -> ReleaseReply {
        self.expire(now, out);
        let reply = match self.entries.iter().position(|e| e.is(hold)) {
            Some(at) => {
                self.end(at, Ending::Released, now, out);
                ReleaseReply::Released
            }
            None => match self.ended.iter().find(|e| e.request == hold.request) {
                // Our own earlier release, whose reply was lost.
                Some(ended) if ended.ending == Ending::Released && ended.seq == Some(hold.seq) => {
                    ReleaseReply::Released
                }
                _ => ReleaseReply::WasLost(self.reason(hold.request)),
            },
        };
        self.settle(now, sequence, out);
        reply
    }

    /// Handles a withdrawal; see [`Store::withdraw`](crate::store::Store::withdraw).
    pub fn withdraw(
        &mut self,
        claim: &Claim,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) {
        self.expire(now, out);
        let mine = |e: &Entry| e.request == claim.request && !e.is_delayed();
        if let Some(at) = self.entries.iter().position(mine) {
            self.end(at, Ending::Released, now, out);
        } else if !self.ended.iter().any(|e| e.request == claim.request) {
            // It has not arrived yet: remember, so that it finds itself refused when it does.
            self.remember(Ended {
                request: claim.request,
                seq: None,
                owner: claim.owner.clone(),
                ending: Ending::Released,
                at: now,
                keep: now,
            });
        }
        self.settle(now, sequence, out);
    }

    /// Remembers an ended claim until this moment, however many others end before: a copy of it may
    /// be applied until then. Nothing changes for a claim that has not ended, or is forgotten.
    pub fn keep(&mut self, request: RequestId, until: BootTime) {
        if let Some(ended) = self.ended.iter_mut().find(|e| e.request == request) {
            ended.keep = ended.keep.max(until);
        }
    }

    /// Breaks holds and ends lock-delays; see [`Store::evict`](crate::store::Store::evict).
    pub fn evict(
        &mut self,
        seq: Option<u64>,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) -> Evicted {
        self.expire(now, out);
        let mut evicted = Evicted::default();
        let meant = |e: &Entry| {
            e.seq()
                .is_some_and(|held| seq.is_none_or(|seq| seq == held))
        };
        // Delays that ran before: a hold that is broken here starts one that stays.
        let delays = |e: &Entry| match e.phase {
            Phase::Delayed { seq: ended } => seq.is_none_or(|seq| seq == ended).then_some(ended),
            Phase::Held { .. } | Phase::Waiting => None,
        };
        if seq.is_some() || !self.entries.iter().any(meant) {
            evicted.delays = self.entries.iter().filter_map(delays).collect();
            self.entries.retain(|e| delays(e).is_none());
        }
        while let Some(at) = self.entries.iter().position(meant) {
            evicted
                .seqs
                .extend(self.entries.get(at).and_then(Entry::seq));
            self.end(at, Ending::Evicted, now, out);
        }
        self.settle(now, sequence, out);
        evicted
    }

    /// Ends every claim of a client that is known to be dead.
    pub fn client_died(
        &mut self,
        client: ClientId,
        now: BootTime,
        sequence: &mut dyn Sequence,
        out: &mut Outcome,
    ) {
        self.expire(now, out);
        let theirs = |e: &Entry| e.client.id == client && !e.is_delayed();
        while let Some(at) = self.entries.iter().position(theirs) {
            self.end(at, Ending::Expired, now, out);
        }
        self.settle(now, sequence, out);
    }

    /// Lets time pass: drops what has run out and grants what became free.
    pub fn tick(&mut self, now: BootTime, sequence: &mut dyn Sequence, out: &mut Outcome) {
        self.expire(now, out);
        self.settle(now, sequence, out);
    }

    /// Whether this number is a live grant.
    pub fn check(&self, seq: u64, now: BootTime) -> Freshness {
        let live = |e: &Entry| e.seq() == Some(seq) && e.until > now;
        match self.entries.iter().any(live) {
            true => Freshness::Current,
            false => Freshness::Stale,
        }
    }

    /// What an operator sees; `None` when nobody holds or waits and no lock-delay runs.
    pub fn view(&self, now: BootTime) -> Option<LockView> {
        let live = || self.entries.iter().filter(|e| e.until > now);
        // A hold that has just run out is delayed from that moment, whether or not a step has
        // noticed it yet.
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

    /// Whether the name can be forgotten: nobody holds or waits, no delay runs, and what it
    /// remembers is too old to matter.
    pub fn is_forgettable(&self, now: BootTime) -> bool {
        self.entries
            .iter()
            .all(|e| e.until <= now && e.lock_delay.is_zero())
            && self
                .ended
                .iter()
                .all(|e| now.since(e.at) >= RETENTION && e.keep <= now)
    }

    fn check_limit(&self, claim: &Claim) -> Result<()> {
        let Some(other) = self.entries.iter().find(|e| e.limit != claim.limit) else {
            return Ok(());
        };
        Err(crate::store::mismatch(&self.name, other.limit, claim.limit))
    }

    /// Ends what has run out by `now`.
    fn expire(&mut self, now: BootTime, out: &mut Outcome) {
        while let Some(at) = self.entries.iter().position(|e| e.until <= now) {
            let until = self.entries.get(at).map_or(now, |e| e.until);
            self.end(at, Ending::Expired, until, out);
        }
    }

    /// Takes an entry out, or turns it into a delay. `when` is the moment of its end.
    fn end(&mut self, at: usize, ending: Ending, when: BootTime, out: &mut Outcome) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let kind = match (entry.phase, ending) {
            (Phase::Delayed { .. }, _) => {
                self.entries.remove(at);
                return;
            }
            (Phase::Waiting, Ending::Released) => EventKind::Withdrawn,
            (_, Ending::Released) => EventKind::Released,
            (_, Ending::Expired) => EventKind::Expired,
            (_, Ending::Evicted) => EventKind::Evicted,
        };
        out.events.push(entry.event(kind, &self.name));
        let ended = Ended {
            request: entry.request,
            seq: entry.seq(),
            owner: entry.owner.clone(),
            ending,
            at: when,
            keep: when,
        };
        let seq = entry.seq().filter(|_| ending.is_unclean());
        if let Some(seq) = seq.filter(|_| !entry.lock_delay.is_zero()) {
            entry.phase = Phase::Delayed { seq };
            entry.since = when;
            entry.until = when + entry.lock_delay;
        } else {
            self.entries.remove(at);
        }
        self.remember(ended);
    }

    /// Adds an ended claim, and forgets the oldest of too many that need not be kept. The new one
    /// stays: [`keep`](Self::keep) may be about to say for how long.
    fn remember(&mut self, ended: Ended) {
        let now = ended.at;
        while self.ended.len() >= REMEMBERED {
            let Some(at) = self.ended.iter().position(|e| e.keep <= now) else {
                break;
            };
            self.ended.remove(at);
        }
        self.ended.push(ended);
    }

    /// Grants from the head of the queue, in order, as long as there is room.
    fn settle(&mut self, now: BootTime, sequence: &mut dyn Sequence, out: &mut Outcome) {
        let mut taken: u64 = self.taken();
        let mut predecessor = None;
        for entry in &mut self.entries {
            if entry.phase != Phase::Waiting {
                continue;
            }
            if taken + u64::from(entry.units) > u64::from(entry.limit) {
                break;
            }
            taken += u64::from(entry.units);
            let seq = sequence.next(self.last_seq);
            self.last_seq = seq;
            entry.phase = Phase::Held { seq };
            entry.since = now;
            entry.until = now + entry.lease;
            let before: &mut Option<Predecessor> = &mut predecessor;
            if before.is_none() {
                *before = self.ended.iter().rev().find_map(Ended::predecessor);
            }
            out.events.push(entry.event(EventKind::Granted, &self.name));
            out.granted.push(Woken {
                request: entry.request,
                client: entry.client.id,
                grant: Grant {
                    seq,
                    predecessor: before.clone(),
                },
            });
        }
    }

    fn taken(&self) -> u64 {
        self.entries
            .iter()
            .filter(|e| e.takes_units())
            .map(|e| u64::from(e.units))
            .sum()
    }

    /// Whether the claim with this ticket would be granted at once: room for it and for all ahead.
    fn fits_now(&self, ticket: u64) -> bool {
        let wanted: u64 = self
            .entries
            .iter()
            .filter(|e| e.takes_units() || e.ticket <= ticket)
            .map(|e| u64::from(e.units))
            .sum();
        let limit = self
            .entries
            .iter()
            .find(|e| e.ticket == ticket)
            .map_or(0, |e| e.limit);
        wanted <= u64::from(limit)
    }

    /// How this claim stands at `now`, as the answer to its repeated claim would say; changes
    /// nothing.
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

    /// The soonest moment at which units can become free without anybody's word.
    fn retry_after(&self, now: BootTime) -> Option<Duration> {
        self.entries
            .iter()
            .filter(|e| e.takes_units())
            .map(|e| e.until.since(now))
            .min()
    }

    fn reason(&self, request: RequestId) -> LostReason {
        let ended = self.ended.iter().find(|e| e.request == request);
        ended.map_or(LostReason::Forgotten, |e| e.ending.into())
    }
}

impl Entry {
    /// Whether this is the live hold that is meant: both the request and the number must match.
    fn is(&self, hold: &Hold) -> bool {
        self.request == hold.request && self.seq() == Some(hold.seq)
    }
}
