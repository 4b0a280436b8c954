//! What this client knows about its own claims.
//!
//! etcd forgets a claim with its key; here it is known which requests were queued or granted, and as
//! what, so that a repeated request is never created a second time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch_core::store::{Claim, Grant};
use clinch_core::{LostReason, Name, RequestId};

use crate::keys::Keys;
use crate::leases::Lease;
use crate::record::Record;

/// How many ended claims are remembered.
const REMEMBERED: usize = 4096;

/// A claim of this client.
#[derive(Debug, Clone)]
pub(crate) struct Mine {
    pub(crate) name: Name,
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
}

/// The claims of this client.
#[derive(Debug, Default)]
pub(crate) struct Ours(Mutex<Book>);

impl Ours {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request to create the claim is about to be sent. Returns it as it was before.
    pub(crate) fn begin(&self, claim: &Claim, keys: &Keys) -> Result<Mine, Past> {
        let mut book = self.book();
        if let Some(past) = book.past.get(&claim.request) {
            return Err(*past);
        }
        let mine = book.live.entry(claim.request).or_insert_with(|| Mine {
            name: claim.name.clone(),
            key: keys.claim(&claim.name, claim.limit, claim.request),
            delay: (!claim.lock_delay.is_zero())
                .then(|| keys.delay(&claim.name, claim.limit, claim.request)),
            record: Record::of(claim),
            lease: None,
            seq: None,
            grant: None,
            unknown: false,
            leaving: false,
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
        self.book().live.remove(&request);
    }

    /// It has ended.
    pub(crate) fn end(&self, request: RequestId, reason: LostReason) {
        let mut book = self.book();
        let seq = book.live.remove(&request).and_then(|mine| mine.seq);
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
