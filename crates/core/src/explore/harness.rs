//! State that the users of a run share, and the checks after each step.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::messages::poll_once;
use super::net::Net;
use super::plan::{LockKind, Plan};
use super::rng::Rng;
use super::store::RemoteStore;
use crate::memory::MemoryStore;
use crate::store::{Admin, Store};
use crate::{BootTime, Clinch, Clock, Guard, LostReason, Name, RequestId, Token, valid_for};

/// A guard that a user holds.
pub(super) struct Held {
    pub(super) user: usize,
    pub(super) client: usize,
    pub(super) kind: LockKind,
    pub(super) guard: Rc<Guard>,
    pub(super) max_hold: bool,
}

impl Held {
    fn request(&self) -> RequestId {
        self.guard.local_hold().hold().store_hold.request
    }

    pub(super) fn seq(&self) -> u64 {
        self.guard.token().seq()
    }
}

/// One client of the store.
pub(super) struct TestClient {
    pub(super) clinch: Clinch,
    pub(super) store: Arc<RemoteStore>,
    pub(super) clock: Clock,
    /// Its `close` has been called.
    pub(super) closing: Cell<bool>,
}

pub(super) struct Harness {
    pub(super) plan: Plan,
    pub(super) rng: RefCell<Rng>,
    pub(super) clients: Vec<TestClient>,
    pub(super) net: Arc<Net>,
    /// Direct access to the store, for checks.
    pub(super) store: MemoryStore,
    pub(super) held: RefCell<Vec<Held>>,
    /// Tokens of all guards so far.
    pub(super) tokens: RefCell<Vec<(LockKind, Token)>>,
    /// Users whose call is to be dropped.
    pub(super) cancel: Vec<Cell<bool>>,
    /// Users that are inside a call.
    pub(super) calling: Vec<Cell<bool>>,
    /// Users start no new calls.
    pub(super) ending: Cell<bool>,
    pub(super) violation: RefCell<Option<String>>,
    /// Sequence numbers in order of appearance; the trace shows their index.
    pub(super) seqs: RefCell<Vec<u64>>,
}

impl Harness {
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if super::hook::is_traced() {
            super::hook::note(text());
        }
    }

    pub(super) fn violated(&self, text: String) {
        self.violation.borrow_mut().get_or_insert(text);
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

    /// Checks the invariants; called after each step.
    pub(super) fn check(&self) {
        if let Some(violation) = self.net.state().violation.take() {
            self.violated(violation);
        }
        let held = self.held.borrow();
        let valid: Vec<&Held> = held.iter().filter(|h| h.guard.is_valid()).collect();
        for h in &valid {
            if self.clients[h.client].closing.get() {
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
            let current = poll_once(self.store.check(&name, h.seq()));
            if !matches!(current, Some(Ok(fresh)) if fresh.is_current()) {
                let token = self.token_text(h.guard.token());
                self.violated(format!(
                    "user{} has a valid guard {token} of {:?}, which the store does not have",
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

    /// The token of a new guard must be greater than the tokens of all earlier guards that exclude it.
    /// A hold that was evicted on its way to the caller is exempt.
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

    /// A guard reports its loss: there must be a cause.
    pub(super) fn check_loss(&self, held: &Held, reason: LostReason) {
        let net = self.net.state();
        let now = self.clients[held.client].clock.now();
        let sent = net.acknowledged.get(&held.request()).copied();
        let sent = sent.unwrap_or(BootTime::from_nanos(0));
        let troubled = |t: BootTime| t >= sent;
        let troubled = net.clients[held.client].trouble.is_some_and(troubled);
        let has_cause = match reason {
            LostReason::Unrenewed => troubled && now >= sent + valid_for(self.plan.lease),
            LostReason::Expired | LostReason::Forgotten => troubled,
            LostReason::Evicted => net.evicted.contains(&held.seq()),
            LostReason::MaxHold => held.max_hold,
            LostReason::Closed => self.clients[held.client].closing.get(),
            // Its holder did not release it, and there is no fork here.
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

    /// Claims and tasks that must be gone once the run is idle.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        let views = poll_once(self.store.list("")).and_then(Result::ok);
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
        for (at, client) in self.clients.iter().enumerate() {
            let found = client.clinch.engine().leftovers();
            left.extend(found.into_iter().map(|text| format!("client{at}: {text}")));
        }
        left
    }
}
