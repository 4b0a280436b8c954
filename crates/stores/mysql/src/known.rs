//! What this client knows of names that it has just used.
//!
//! Every entry is a hint. A row's version is never used twice, so an update that demands the version
//! that the client itself has written applies to the row as it was left, or to none.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::store::{Claim, Ending, Hold, Predecessor};
use clinch_core::{BootTime, Clock, Name, OwnerId, RequestId};

/// For how long such knowledge is worth an attempt.
const FRESH: Duration = Duration::from_secs(10);
/// Names that are known at the same time.
const MOST: usize = 4096;

/// A free name as this client has left it.
#[derive(Debug)]
pub(crate) struct Free {
    /// The version of its row.
    pub(crate) version: u64,
    /// The hold that was given up.
    pub(crate) before: Predecessor,
}

#[derive(Debug)]
enum Known {
    /// This client holds it, and nobody waited when it was taken.
    Held {
        request: RequestId,
        token: u64,
        owner: OwnerId,
    },
    Free(BootTime, Free),
    /// Somebody else waited when this client released it last.
    Contended(BootTime),
}

/// The names.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<Name, Known>>);

impl Names {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &Name, known: Known) {
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(name) {
            all.clear();
        }
        all.insert(name.clone(), known);
    }

    /// This claim has got a plain row.
    pub(crate) fn held(&self, claim: &Claim, token: u64) {
        let held = Known::Held {
            request: claim.request,
            token,
            owner: claim.owner.clone(),
        };
        self.put(&claim.name, held);
    }

    /// This hold was given up, which gave the row this version.
    pub(crate) fn released(&self, hold: &Hold, version: u64) {
        let now = Clock::boot().now();
        let mut all = self.all();
        match all.remove(&hold.name) {
            Some(Known::Held {
                request,
                token,
                owner,
            }) if request == hold.request && token == hold.seq => {
                let before = Predecessor {
                    ending: Ending::Released,
                    seq: token,
                    owner,
                };
                let free = Free { version, before };
                all.insert(hold.name.clone(), Known::Free(now, free));
            }
            _ => {}
        }
    }

    /// A release has found others waiting, or none.
    pub(crate) fn contended(&self, name: &Name, contended: bool) {
        match contended {
            true => self.put(name, Known::Contended(Clock::boot().now())),
            false => drop(self.all().remove(name)),
        }
    }

    /// Whether the next release will hardly be a simple one.
    pub(crate) fn is_contended(&self, name: &Name) -> bool {
        matches!(self.all().get(name), Some(Known::Contended(since)) if is_fresh(*since))
    }

    /// The name as it was left, for one attempt to take it.
    pub(crate) fn take_free(&self, name: &Name) -> Option<Free> {
        let mut all = self.all();
        match all.remove(name)? {
            Known::Free(since, free) => is_fresh(since).then_some(free),
            other => {
                all.insert(name.clone(), other);
                None
            }
        }
    }
}

fn is_fresh(since: BootTime) -> bool {
    Clock::boot().now().since(since) < FRESH
}
