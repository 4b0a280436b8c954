//! What this client knows about its own claims.
//!
//! etcd forgets a claim with its key; here it is known which requests were queued or granted, and as
//! what, so that a repeated request is never created a second time.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::store::{Claim, Grant};
use clinch_core::{BootTime, LostReason, Name, RequestId};

use crate::keys::{Keys, Seat};
use crate::lease::Lease;
use crate::record::Record;

/// How many ended claims are remembered.
const REMEMBERED: usize = 4096;
/// How many names are remembered with the seat that they had last.
const MOST_NAMES: usize = 4096;

/// A claim of this client.
#[derive(Debug, Clone)]
pub(crate) struct Mine {
    pub(crate) name: Name,
    pub(crate) seat: Seat,
    pub(crate) key: Vec<u8>,
    /// Where what stays of it is, if it has a lock-delay.
    pub(crate) delay: Option<Vec<u8>>,
    pub(crate) record: Record,
    /// What its key hangs on, once it was put.
    pub(crate) lease: Option<Arc<Lease>>,
    /// Its create revision, once it is known.
    pub(crate) seq: Option<u64>,
    pub(crate) grant: Option<Grant>,
    /// A request to create it may still be under way.
    pub(crate) unknown: bool,
    /// When its grant was last written down.
    pub(crate) noted: Option<BootTime>,
    /// A release may have arrived whose reply was lost.
    pub(crate) leaving: bool,
}

/// A claim that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past {
    request: RequestId,
    pub(crate) seq: Option<u64>,
    pub(crate) reason: LostReason,
}

#[derive(Debug, Default)]
struct Book {
    live: HashMap<RequestId, Mine>,
    past: HashMap<RequestId, Past>,
    order: VecDeque<RequestId>,
    seats: Seats,
}

/// The seats of this client: a claim has one, and gives it back when nothing of it can come any more.
#[derive(Debug, Default)]
struct Seats {
    client: u64,
    free: BTreeSet<u64>,
    made: u64,
    /// A name that is claimed again and again always has the same key.
    usual: HashMap<Name, u64>,
}

impl Seats {
    fn take(&mut self, name: &Name) -> Seat {
        let usual = self.usual.get(name).copied();
        let number = usual.filter(|number| self.free.remove(number));
        let number = number.or_else(|| self.free.pop_first()).unwrap_or_else(|| {
            self.made += 1;
            self.made
        });
        if self.usual.len() >= MOST_NAMES && !self.usual.contains_key(name) {
            self.usual.clear();
        }
        self.usual.insert(name.clone(), number);
        Seat(self.client, number)
    }
}

impl Book {
    fn leave(&mut self, request: RequestId, clean: bool) -> Option<Mine> {
        let mine = self.live.remove(&request)?;
        if clean && !mine.unknown {
            self.seats.free.insert(mine.seat.1);
        }
        Some(mine)
    }
}

/// The claims of this client.
#[derive(Debug)]
pub(crate) struct Ours(Mutex<Book>);

impl Ours {
    pub(crate) fn new(client: u64) -> Self {
        let book = Book {
            seats: Seats {
                client,
                ..Seats::default()
            },
            ..Book::default()
        };
        Self(Mutex::new(book))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request to create the claim is about to be sent. Returns it as it was before.
    pub(crate) fn begin(&self, claim: &Claim, keys: &Keys) -> Result<Mine, Past> {
        let mut book = self.book();
        if let Some(past) = book.past.get(&claim.request) {
            return Err(*past);
        }
        let Book { live, seats, .. } = &mut *book;
        let mine = live.entry(claim.request).or_insert_with(|| {
            let seat = seats.take(&claim.name);
            Mine {
                name: claim.name.clone(),
                seat,
                key: keys.claim(&claim.name, claim.limit, seat),
                delay: (!claim.lock_delay.is_zero())
                    .then(|| keys.delay(&claim.name, claim.limit, seat)),
                record: Record::of(claim),
                lease: None,
                seq: None,
                grant: None,
                unknown: false,
                noted: None,
                leaving: false,
            }
        });
        Ok(mine.clone())
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<Mine> {
        self.book().live.get(&request).cloned()
    }

    /// Changes what is known about a claim, if it is known.
    pub(crate) fn update(&self, request: RequestId, change: impl FnOnce(&mut Mine)) {
        if let Some(mine) = self.book().live.get_mut(&request) {
            change(mine);
        }
    }

    /// Nothing of it has ever been at etcd, and nothing will come.
    pub(crate) fn forget(&self, request: RequestId) {
        self.book().leave(request, true);
    }

    /// It has ended. Its key is free again only if we have deleted it ourselves: else something of it may
    /// still come, or stay.
    pub(crate) fn end(&self, request: RequestId, reason: LostReason) {
        let mut book = self.book();
        let mine = book.leave(request, reason == LostReason::Released);
        let seq = mine.and_then(|mine| mine.seq);
        if book.past.contains_key(&request) {
            return;
        }
        book.past.insert(
            request,
            Past {
                request,
                seq,
                reason,
            },
        );
        book.order.push_back(request);
        if book.order.len() > REMEMBERED
            && let Some(oldest) = book.order.pop_front()
        {
            book.past.remove(&oldest);
        }
    }

    pub(crate) fn past(&self, request: RequestId) -> Option<Past> {
        self.book().past.get(&request).copied()
    }

    /// Whether anything is left that may have a lock-delay to leave behind.
    pub(crate) fn has_delays(&self) -> bool {
        let book = self.book();
        book.live.values().any(|mine| mine.delay.is_some())
    }
}
