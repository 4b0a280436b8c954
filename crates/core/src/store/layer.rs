//! The layer that core puts around every store.
//!
//! It does what each store would otherwise repeat: refuse calls after `close`, refuse what the store
//! cannot do, and add the store and the name to errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Admin, Capability, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView,
    ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Suspicions, Wakes,
};
use crate::{Error, ErrorKind, Name, Result, format_duration};

/// The longest label in bytes.
const MAX_LABEL: usize = 255;
/// The longest published value in bytes. A store rewrites the value with each step of its lock.
const MAX_VALUE: usize = 4096;
/// The longest lock-delay: Chubby's and Consul's bound.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);

/// A store with the checks that are the same for all stores.
#[derive(Debug)]
pub(crate) struct Layer {
    inner: Arc<dyn Admin>,
    /// The stores of this build; an error about a missing capability names those that have it.
    peers: Vec<StoreInfo>,
    closed: AtomicBool,
}

/// The terms of a claim that a store may not support.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) name: &'a Name,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    pub(crate) lease: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) label: Option<&'a str>,
    pub(crate) value: Option<&'a str>,
    /// Whether the order of arrival is required, and not only preferred.
    pub(crate) fair: bool,
}

impl<'a> From<&'a Claim> for Terms<'a> {
    fn from(claim: &'a Claim) -> Self {
        Self {
            name: &claim.name,
            units: claim.units,
            limit: claim.limit,
            lease: claim.lease,
            lock_delay: claim.lock_delay,
            label: claim.label.as_deref(),
            value: claim.value.as_deref(),
            fair: false,
        }
    }
}

impl Layer {
    pub(crate) fn new(inner: Arc<dyn Admin>, peers: Vec<StoreInfo>) -> Self {
        Self {
            inner,
            peers,
            closed: AtomicBool::new(false),
        }
    }

    /// Refuses, before any I/O, what the store cannot do.
    pub(crate) fn require(&self, capability: Capability) -> Result<()> {
        let info = self.inner.info();
        if info.capabilities.has(capability) {
            return Ok(());
        }
        let text = format!("this store has no {capability}");
        Err(Error::new(ErrorKind::Unsupported, text)
            .with_store(info.scheme)
            .with_advice(self.who_has(capability)))
    }

    /// The stores of this build that have a capability.
    fn who_has(&self, capability: Capability) -> String {
        let able = |store: &&StoreInfo| store.capabilities.has(capability);
        let able = self.peers.iter().filter(able);
        let names: Vec<&str> = able.map(|store| store.scheme).collect();
        match names.as_slice() {
            [] => "`clinch stores` shows which stores have it".to_owned(),
            names => format!("these have it: {}", names.join(", ")),
        }
    }

    /// Refuses, before any I/O, a claim that this store cannot keep.
    pub(crate) fn check_terms(&self, terms: &Terms<'_>) -> Result<()> {
        self.check_limits(terms)
            .and_then(|()| self.check_capabilities(terms))
            .map_err(|error| self.explain_name(error, terms.name))
    }

    fn check_limits(&self, terms: &Terms<'_>) -> Result<()> {
        let (limits, text) = (self.inner.info().limits, format_duration);
        let Terms {
            lease,
            units,
            limit,
            ..
        } = *terms;
        if terms.name.as_str().len() > limits.max_name {
            let most = format!("at most {} bytes on this store", limits.max_name);
            return Err(Error::invalid("the name is too long").with_advice(most));
        }
        if lease < limits.min_lease {
            let least = format!("the least on this store is {}", text(limits.min_lease));
            let error = Error::invalid(format!("a lease of {} is too short", text(lease)));
            return Err(error.with_advice(least));
        }
        if lease > limits.max_lease {
            let most = format!("the most on this store is {}", text(limits.max_lease));
            let error = Error::invalid(format!("a lease of {} is too long", text(lease)));
            return Err(error.with_advice(most));
        }
        if units == 0 {
            let error = Error::invalid("zero permits were requested");
            return Err(error.with_advice("request at least one"));
        }
        if limit == 0 {
            let error = Error::invalid("a semaphore has zero permits");
            return Err(error.with_advice("give it at least one"));
        }
        if units > limit {
            let error =
                Error::invalid(format!("{units} permits were requested, of {limit} in all"));
            return Err(error.with_advice(format!("request 1 to {limit}")));
        }
        if terms.lock_delay > MAX_LOCK_DELAY {
            let delay = text(terms.lock_delay);
            let error = Error::invalid(format!("a lock-delay of {delay} is too long"));
            return Err(error.with_advice(format!("the most is {}", text(MAX_LOCK_DELAY))));
        }
        if terms.label.is_some_and(|label| label.len() > MAX_LABEL) {
            return Err(Error::invalid(format!(
                "a label has more than {MAX_LABEL} bytes"
            )));
        }
        terms.value.map_or(Ok(()), check_value)
    }

    fn check_capabilities(&self, terms: &Terms<'_>) -> Result<()> {
        if !terms.lock_delay.is_zero() {
            self.require(Capability::LockDelay)?;
        }
        if terms.fair {
            self.require(Capability::Queue)?;
        }
        if terms.value.is_some() {
            self.require(Capability::Values)?;
        }
        match terms.limit {
            1 => Ok(()),
            u32::MAX => self.require(Capability::Shared),
            _ => self.require(Capability::Semaphores),
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Closed, "the client was closed")
                .with_store(self.inner.info().scheme)),
            false => Ok(()),
        }
    }

    fn explain(&self, error: Error) -> Error {
        error.or_store(self.inner.info().scheme)
    }

    /// Adds store and name to an error that has none.
    pub(crate) fn explain_name(&self, error: Error, name: &Name) -> Error {
        let error = self.explain(error);
        match error.name() {
            None => error.with_name(name.as_str()),
            Some(_) => error,
        }
    }
}

/// Refuses a published value that is too long.
pub(crate) fn check_value(value: &str) -> Result<()> {
    match value.len() > MAX_VALUE {
        true => Err(Error::invalid(format!(
            "a published value has more than {MAX_VALUE} bytes"
        ))),
        false => Ok(()),
    }
}

#[async_trait]
impl Store for Layer {
    fn info(&self) -> &StoreInfo {
        self.inner.info()
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.check_open()?;
        self.check_terms(&claim.into())?;
        let reply = self.inner.claim(claim).await;
        reply.map_err(|error| self.explain_name(error, &claim.name))
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.inner.wakes(claim)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.check_open()?;
        let replies = self.inner.renew(renewals).await;
        replies.map_err(|error| self.explain(error))
    }

    fn suspicions(&self) -> Suspicions {
        self.inner.suspicions()
    }

    /// Also after [`close`](Store::close): a release may still be under way.
    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let reply = self.inner.release(hold).await;
        reply.map_err(|error| self.explain_name(error, &hold.name))
    }

    /// Also after [`close`](Store::close): a claim may still be under way.
    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let reply = self.inner.withdraw(claim).await;
        reply.map_err(|error| self.explain_name(error, &claim.name))
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.check_open()?;
        self.require(Capability::Tokens)?;
        let reply = self.inner.check(name, seq).await;
        reply.map_err(|error| self.explain_name(error, name))
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        let closed = self.inner.close().await;
        closed.map_err(|error| self.explain(error))
    }
}

#[async_trait]
impl Admin for Layer {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.check_open()?;
        self.require(Capability::List)?;
        let views = self.inner.list(prefix).await;
        views.map_err(|error| self.explain(error))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.check_open()?;
        let view = self.inner.inspect(name).await;
        view.map_err(|error| self.explain_name(error, name))
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.check_open()?;
        self.require(Capability::Events)?;
        let events = self.inner.events(prefix).await;
        events.map_err(|error| self.explain(error))
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.check_open()?;
        self.require(Capability::Evict)?;
        let evicted = self.inner.evict(name, seq).await;
        evicted.map_err(|error| self.explain_name(error, name))
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.check_open()?;
        let findings = self.inner.doctor().await;
        findings.map_err(|error| self.explain(error))
    }
}
