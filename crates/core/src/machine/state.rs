//! The steps of one name: commands that change its state.

use super::{Ended, Entry, Outcome, Phase, Sequence, Woken};
use crate::store::{
    Busy, Claim, ClaimReply, Ending, EventKind, Evicted, Grant, Hold, LostReason, Predecessor,
    ReleaseReply, RenewReply, Renewal,
};
use crate::{BootTime, ClientId, Name, RequestId, Result};

/// How many tombstones a name keeps, besides those that it must keep.
const MAX_ENDED: usize = 8;

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
    /// Tombstones of claims that ended recently, oldest first.
    pub ended: Vec<Ended>,
    /// The last sequence number of this name.
    pub last_seq: u64,
}

impl NameState {
    /// A name without claims.
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
        self.grant_waiting(now, sequence, out);
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
        self.grant_waiting(now, sequence, out);
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
                // A repeat of this release, whose reply was lost.
                Some(ended) if ended.ending == Ending::Released && ended.seq == Some(hold.seq) => {
                    ReleaseReply::Released
                }
                _ => ReleaseReply::WasLost(self.reason(hold.request)),
            },
        };
        self.grant_waiting(now, sequence, out);
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
        let withdrawn = |e: &Entry| e.request == claim.request && !e.is_delayed();
        if let Some(at) = self.entries.iter().position(withdrawn) {
            self.end(at, Ending::Released, now, out);
        } else if !self.ended.iter().any(|e| e.request == claim.request) {
            // The claim has not arrived yet: the tombstone refuses it when it does.
            self.remember(Ended {
                request: claim.request,
                seq: None,
                owner: claim.owner.clone(),
                ending: Ending::Released,
                at: now,
                keep: now,
            });
        }
        self.grant_waiting(now, sequence, out);
    }

    /// Keeps the tombstone of an ended claim until then, however many other claims end: a copy of the
    /// claim may still arrive. No effect if the claim has not ended, or has been forgotten.
    pub fn keep(&mut self, request: RequestId, until: BootTime) {
        if let Some(ended) = self.ended.iter_mut().find(|e| e.request == request) {
            ended.keep = ended.keep.max(until);
        }
    }

    /// Evicts holds and ends lock-delays; see [`Admin::evict`](crate::store::Admin::evict).
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
        // Only delays that were running before: a hold that is evicted here starts a delay that stays.
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
        self.grant_waiting(now, sequence, out);
        evicted
    }

    /// Ends every claim of a dead client.
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
        self.grant_waiting(now, sequence, out);
    }

    /// Drops expired claims and grants the units that became free.
    pub fn tick(&mut self, now: BootTime, sequence: &mut dyn Sequence, out: &mut Outcome) {
        self.expire(now, out);
        self.grant_waiting(now, sequence, out);
    }

    fn check_limit(&self, claim: &Claim) -> Result<()> {
        let Some(other) = self.entries.iter().find(|e| e.limit != claim.limit) else {
            return Ok(());
        };
        Err(crate::store::mismatch(&self.name, other.limit, claim.limit))
    }

    /// Ends the claims whose time has passed.
    fn expire(&mut self, now: BootTime, out: &mut Outcome) {
        while let Some(at) = self.entries.iter().position(|e| e.until <= now) {
            let until = self.entries.get(at).map_or(now, |e| e.until);
            self.end(at, Ending::Expired, until, out);
        }
    }

    /// Removes an entry, or turns it into a lock-delay. `when` is the time of its end.
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

    /// Adds a tombstone. If there are too many, the oldest that need not be kept goes. The new one
    /// always stays, because [`keep`](Self::keep) may follow.
    fn remember(&mut self, ended: Ended) {
        let now = ended.at;
        while self.ended.len() >= MAX_ENDED {
            let Some(at) = self.ended.iter().position(|e| e.keep <= now) else {
                break;
            };
            self.ended.remove(at);
        }
        self.ended.push(ended);
    }

    /// Grants from the head of the queue, in order, while units are free.
    fn grant_waiting(&mut self, now: BootTime, sequence: &mut dyn Sequence, out: &mut Outcome) {
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

    /// Whether the claim with this ticket would be granted at once: units for it and for all ahead.
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

    pub(super) fn reason(&self, request: RequestId) -> LostReason {
        let ended = self.ended.iter().find(|e| e.request == request);
        ended.map_or(LostReason::Forgotten, |e| e.ending.into())
    }
}

impl Entry {
    /// Whether this is the live hold `hold`: request and sequence number must both match.
    fn is(&self, hold: &Hold) -> bool {
        self.request == hold.request && self.seq() == Some(hold.seq)
    }
}
