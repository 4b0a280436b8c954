//! Faults that a test injects into one client's requests.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Clock, Effect, Error, ErrorKind, Result};

/// The requests that can be made to fail.
///
/// ```
/// use clinch_core::memory::{Fault, Faults, Op};
/// let faults = Faults::default();
/// faults.inject(Op::Renew, Fault::ErrorBefore);
/// assert_eq!(faults.take(Op::Claim), None); // only renewals fail
/// assert_eq!(faults.take(Op::Renew), Some(Fault::ErrorBefore));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// A claim.
    Claim,
    /// A batch of renewals.
    Renew,
    /// A release.
    Release,
    /// A withdrawal.
    Withdraw,
    /// An eviction.
    Evict,
    /// Anything that only reads.
    Read,
}

/// What goes wrong with one request.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::{Clock, memory::Fault};
/// let clock = Clock::boot();
/// assert!(!Fault::ErrorBefore.before(&clock).await.unwrap_err().may_have_taken_effect());
/// assert!(Fault::ReplyLost.after(&clock).await.unwrap_err().may_have_taken_effect());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails before it has any effect.
    ErrorBefore,
    /// It takes effect, and the reply is an error that says "unknown": the reply was lost.
    ReplyLost,
    /// It takes no effect, and the reply is the same error: the request was lost.
    RequestLost,
    /// It is held back for so long, then takes effect and is answered.
    DelayBefore(Duration),
    /// It takes effect at once, and the answer comes so much later.
    DelayAfter(Duration),
    /// It never takes effect, and no answer ever comes.
    HangBefore,
    /// It takes effect, and no answer ever comes.
    HangAfter,
}

/// The faults of one client, set from a test.
///
/// ```
/// use clinch_core::memory::{Fault, Faults, Op};
/// let faults = Faults::default();
/// faults.inject(Op::Claim, Fault::ReplyLost); // the next claim only
/// faults.cut(true);                           // everything, until healed
/// faults.cut(false);
/// ```
#[derive(Debug, Default)]
pub struct Faults {
    queued: Mutex<HashMap<Op, Vec<Fault>>>,
    always: Mutex<Option<Fault>>,
    /// Names whose renewals fail, each for itself.
    unrenewable: Mutex<HashSet<String>>,
    /// Names whose renewals fail together with their batch.
    poison: Mutex<HashSet<String>>,
    drop_wakes: AtomicBool,
}

impl Faults {
    /// Makes the next request of this kind fail so; several are used up in order.
    pub fn inject(&self, op: Op, fault: Fault) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.entry(op).or_default().push(fault);
    }

    /// Cuts this client off from the store (every request fails before it has an effect), or heals.
    pub fn cut(&self, cut: bool) {
        self.always(cut.then_some(Fault::ErrorBefore));
    }

    /// Makes every request fail so, until `None` heals it.
    pub fn always(&self, fault: Option<Fault>) {
        *self.always.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Makes the renewals of these names fail before they have an effect, and only these: their replies
    /// are [`RenewReply::Unknown`](crate::store::RenewReply), as when one of several servers is away.
    ///
    /// ```
    /// let faults = clinch_core::memory::Faults::default();
    /// faults.fail_renewals_of(&["a"]);
    /// assert!(faults.fails_renewal_of("a") && !faults.fails_renewal_of("b"));
    /// faults.fail_renewals_of(&[]); // healed
    /// ```
    pub fn fail_renewals_of(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        *self.unrenewable() = names;
    }

    /// Whether renewals of this name fail: for stores that inject faults.
    pub fn fails_renewal_of(&self, name: &str) -> bool {
        self.unrenewable().contains(name)
    }

    /// Makes each batch of renewals fail as a whole that has one of these names.
    ///
    /// ```
    /// let faults = clinch_core::memory::Faults::default();
    /// faults.fail_batches_with(&["a"]);
    /// assert!(faults.fails_batch_with("a") && !faults.fails_batch_with("b"));
    /// ```
    pub fn fail_batches_with(&self, names: &[&str]) {
        *self.poison() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    /// Whether a batch with this name fails: for stores that inject faults.
    pub fn fails_batch_with(&self, name: &str) -> bool {
        self.poison().contains(name)
    }

    fn unrenewable(&self) -> MutexGuard<'_, HashSet<String>> {
        let names = self.unrenewable.lock();
        names.unwrap_or_else(PoisonError::into_inner)
    }

    fn poison(&self) -> MutexGuard<'_, HashSet<String>> {
        self.poison.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back every fault that has not happened yet.
    pub fn clear(&self) {
        self.queued
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        self.always(None);
        self.unrenewable().clear();
        self.poison().clear();
        self.drop_wakes(false);
    }

    /// Loses every wake that this client's requests would send to others.
    pub fn drop_wakes(&self, drop: bool) {
        self.drop_wakes.store(drop, Ordering::SeqCst);
    }

    /// Whether wakes are lost at present.
    pub fn drops_wakes(&self) -> bool {
        self.drop_wakes.load(Ordering::SeqCst)
    }

    /// Whether every request fails at present.
    pub fn is_cut(&self) -> bool {
        let always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        *always == Some(Fault::ErrorBefore)
    }

    /// Uses up the fault of the next request of this kind: for stores that inject faults.
    pub fn take(&self, op: Op) -> Option<Fault> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        match queued.get_mut(&op) {
            Some(faults) if !faults.is_empty() => Some(faults.remove(0)),
            _ => *self.always.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Fault {
    /// What goes wrong before the request takes effect.
    pub async fn before(self, clock: &Clock) -> Result<()> {
        match self {
            Self::ErrorBefore => Err(injected("the connection was refused")),
            Self::DelayBefore(span) => {
                clock.sleep(span).await;
                Ok(())
            }
            Self::RequestLost => {
                Err(injected("the request was lost").with_effect(Effect::Possible))
            }
            Self::HangBefore => std::future::pending().await,
            Self::ReplyLost | Self::DelayAfter(_) | Self::HangAfter => Ok(()),
        }
    }

    /// What goes wrong after the request has taken effect.
    pub async fn after(self, clock: &Clock) -> Result<()> {
        match self {
            Self::ReplyLost => Err(injected("the reply was lost").with_effect(Effect::Possible)),
            Self::DelayAfter(span) => {
                clock.sleep(span).await;
                Ok(())
            }
            Self::HangAfter => std::future::pending().await,
            Self::ErrorBefore | Self::RequestLost | Self::DelayBefore(_) | Self::HangBefore => {
                Ok(())
            }
        }
    }
}

/// The error of a request that a test made fail.
pub(super) fn injected(what: &str) -> Error {
    Error::new(ErrorKind::Unreachable, what)
}
