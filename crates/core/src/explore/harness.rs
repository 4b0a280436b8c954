//! What the users of a run share, and what is known of their guards.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::net::Net;
use super::plan::{LockKind, Plan};
use super::rng::Rng;
use super::store::FarStore;
use super::wire::poll_now;
use crate::memory::MemoryStore;
use crate::store::Store;
use crate::{BootTime, Clinch, Clock, Guard, LostReason, Name, RequestId, Token, valid_for};

/// A guard in the hands of a user.
pub(super) struct Held {
    pub(super) user: usize,
    pub(super) client: usize,
    pub(super) kind: LockKind,
    pub(super) guard: Rc<Guard>,
    pub(super) max_hold: bool,
}

impl Held {
    fn request(&self) -> RequestId {
        self.guard.tenure().hold().spi.request
    }

    pub(super) fn seq(&self) -> u64 {
        self.guard.token().seq()
    }
}

/// One client of the store.
pub(super) struct Side {
    pub(super) clinch: Clinch,
    pub(super) store: Arc<FarStore>,
    pub(super) clock: Clock,
    /// Its `close` has been called.
    pub(super) closing: Cell<bool>,
}

pub(super) struct Lab {
    pub(super) plan: Plan,
    pub(super) rng: RefCell<Rng>,
    pub(super) sides: Vec<Side>,
    pub(super) net: Arc<Net>,
    /// The store itself, for those who check.
    pub(super) store: MemoryStore,
    pub(super) held: RefCell<Vec<Held>>,
    /// Tokens that were returned: kind, token.
    pub(super) tokens: RefCell<Vec<(LockKind, Token)>>,
    /// Users whose call is to be dropped at once.
    pub(super) cancel: Vec<Cell<bool>>,
    /// Users that are inside a call.
    pub(super) calling: Vec<Cell<bool>>,
    /// No new acts.
    pub(super) ending: Cell<bool>,
    pub(super) wrong: RefCell<Option<String>>,
    /// Sequence numbers in the order of their appearance: the trace shows the place.
    pub(super) seqs: RefCell<Vec<u64>>,
}

impl Lab {
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if super::hook::is_traced() {
            super::hook::note(text());
        }
    }

    pub(super) fn violated(&self, text: String) {
        self.wrong.borrow_mut().get_or_insert(text);
    }

    pub(super) fn token_text(&self, token: Token) -> String {
        let mut seqs = self.seqs.borrow_mut();
        let at = seqs.iter().position(|seq| *seq == token.seq());
        let at = at.unwrap_or_else(|| {
            seqs.push(token.seq());
            seqs.len() - 1
        });
        format!("#{}.{}", at + 1, token.local())
    }

    /// What must be true after each step.
    pub(super) fn check(&self) {
        if let Some(wrong) = self.net.state().wrong.take() {
            self.violated(wrong);
        }
        let held = self.held.borrow();
        let valid: Vec<&Held> = held.iter().filter(|h| h.guard.is_valid()).collect();
        for h in &valid {
            if self.sides[h.client].closing.get() {
                let token = self.token_text(h.guard.token());
                self.violated(format!(
                    "user{} has a valid guard {token} of {:?}, though its client is closed",
                    h.user, h.kind.0
                ));
            }
            if self.net.state().lost.contains(&h.request()) {
                let token = self.token_text(h.guard.token());
                self.violated(format!(
                    "user{} has a valid guard {token}, though its renewal was answered: lost",
                    h.user
                ));
            }
            if self.net.state().evicted.contains(&h.seq()) {
                continue;
            }
            let Ok(name) = Name::new(h.kind.0) else {
                continue;
            };
            let current = poll_now(self.store.check(&name, h.seq()));
            if !matches!(current, Some(Ok(fresh)) if fresh.is_current()) {
                let token = self.token_text(h.guard.token());
                self.violated(format!(
                    "user{} has a valid guard {token} of {:?} that the store does not have",
                    h.user, h.kind.0
                ));
            }
        }
        for (at, h) in valid.iter().enumerate() {
            let evicted = |h: &Held| self.net.state().evicted.contains(&h.seq());
            let same = |o: &&&Held| o.kind.0 == h.kind.0 && !evicted(o);
            let units: u64 = valid[at..]
                .iter()
                .filter(same)
                .map(|o| u64::from(o.kind.1))
                .sum();
            if units > u64::from(h.kind.2) && !evicted(h) {
                self.violated(format!(
                    "{:?}: valid guards for {units} units of {}",
                    h.kind.0, h.kind.2
                ));
            }
        }
    }

    /// A guard was returned: its token must be greater than that of every guard before it that
    /// excludes it. A hold that an operator broke on its way to the caller may be late.
    pub(super) fn check_token(&self, kind: LockKind, token: Token) {
        if self.net.state().evicted.contains(&token.seq()) {
            return;
        }
        let mut tokens = self.tokens.borrow_mut();
        let excludes = |other: &(&str, u32, u32)| {
            other.0 == kind.0 && u64::from(other.1) + u64::from(kind.1) > u64::from(kind.2)
        };
        let later = tokens
            .iter()
            .find(|(other, before)| excludes(other) && *before >= token);
        if let Some((_, before)) = later {
            self.violated(format!(
                "{:?}: token {} was returned after {}",
                kind.0,
                self.token_text(token),
                self.token_text(*before)
            ));
        }
        tokens.push((kind, token));
    }

    /// A guard says that it was lost: there must be a cause.
    pub(super) fn check_loss(&self, held: &Held, reason: LostReason) {
        let net = self.net.state();
        let now = self.sides[held.client].clock.now();
        let sent = net.acknowledged.get(&held.request()).copied();
        let sent = sent.unwrap_or(BootTime::from_nanos(0));
        let troubled = |t: BootTime| t >= sent;
        let troubled = net.clients[held.client].trouble.is_some_and(troubled);
        let has_cause = match reason {
            LostReason::Unrenewed => troubled && now >= sent + valid_for(self.plan.lease),
            LostReason::Expired | LostReason::Forgotten => troubled,
            LostReason::Evicted => net.evicted.contains(&held.seq()),
            LostReason::MaxHold => held.max_hold,
            LostReason::Closed => self.sides[held.client].closing.get(),
            // Its holder did not release it, and nobody forks here.
            LostReason::Released | LostReason::Forked => false,
        };
        drop(net);
        if !has_cause {
            let token = self.token_text(held.guard.token());
            self.violated(format!(
                "user{}'s guard {token} of {:?} was lost ({reason}) without a cause",
                held.user, held.kind.0
            ));
        }
    }

    /// What should not be there any more when all is quiet.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        let views = poll_now(self.store.list("")).and_then(Result::ok);
        for view in views.unwrap_or_default() {
            for (what, parties) in [("holder", &view.holders), ("waiter", &view.waiters)] {
                for party in parties {
                    left.push(format!(
                        "at the store a {what} of {:?}: {}",
                        view.name, party.owner
                    ));
                }
            }
        }
        for (at, side) in self.sides.iter().enumerate() {
            let found = side.clinch.engine().leftovers();
            left.extend(found.into_iter().map(|text| format!("client{at}: {text}")));
        }
        left
    }
}
