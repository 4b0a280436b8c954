//! The leases of one client: one for each length, shared by all claims of that length.
//!
//! No background task keeps a lease alive. It is extended only when the engine sends a claim or a
//! renewal, so a client whose engine has stalled loses its holds, as it should.
//!
//! A lease is requested a little longer than the claims that use it. A claim within that spare time needs
//! no keep-alive: it is one request.

mod lease;
mod retention;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::{BootTime, Effect, Error, ErrorKind, Result, keeper};
use clinch_kit::lock;
use tonic::codegen::tokio_stream;

use crate::connection::Session;
use crate::error::{CallError, unexpected_reply};
use crate::wire::{
    Header, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, revision_and_term,
};

use lease::Length;
pub(crate) use lease::{Confirmed, Lease, seconds};

/// The leases of one client.
#[derive(Debug)]
pub(crate) struct Leases {
    session: Arc<Session>,
    /// A key of our namespace, for reads of which only the reply's header counts.
    any_key: Vec<u8>,
    client: u64,
    granted: AtomicU64,
    pool: Mutex<HashMap<Length, Arc<Lease>>>,
    granting: tokio::sync::Mutex<()>,
    /// The current retention lease, and when it was requested.
    retention: Mutex<Option<(i64, BootTime)>>,
}

/// The reply to a lease grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLease {
    pub(crate) id: i64,
    /// When it was requested; it lives for `ttl` from here at least.
    sent: BootTime,
    pub(crate) ttl: Duration,
    term: u64,
}

impl Leases {
    pub(crate) fn new(session: Arc<Session>, client: u64, any_key: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            session,
            any_key,
            client,
            granted: AtomicU64::default(),
            pool: Mutex::default(),
            granting: tokio::sync::Mutex::default(),
            retention: Mutex::default(),
        })
    }

    fn pool(&self) -> MutexGuard<'_, HashMap<Length, Arc<Lease>>> {
        lock(&self.pool)
    }

    /// A unique lease id, derived from the client's random id and a counter.
    fn next_id(&self) -> i64 {
        let granted = self.granted.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = self
            .client
            .wrapping_add(granted.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        i64::try_from(mixed >> 1).unwrap_or(1).max(1)
    }

    fn pooled(&self, length: Length, until: BootTime) -> Option<Arc<Lease>> {
        let lease = self.pool().get(&length).cloned();
        lease.filter(|lease| !lease.is_dead() && lease.confirmed().until >= until)
    }

    /// The lease for claims of this length, confirmed at least until then.
    pub(crate) async fn get(
        self: &Arc<Self>,
        lease: Duration,
        delay: Duration,
        until: BootTime,
    ) -> Result<Arc<Lease>, CallError> {
        let length = Length::of(lease, delay);
        if let Some(lease) = self.pooled(length, until) {
            return Ok(lease);
        }
        let leases = self.clone();
        self.one_at_a_time(async move {
            // Another task may have extended it meanwhile.
            if let Some(lease) = leases.pooled(length, until) {
                return Ok(lease);
            }
            let old = leases.pool().get(&length).cloned();
            if let Some(lease) = old
                && lease.confirmed().until > leases.session.clock.now()
                && leases.keep_alive(&lease).await?
            {
                return Ok(lease);
            }
            let new = Arc::new(leases.create(length).await?);
            leases.pool().insert(length, new.clone());
            Ok(new)
        })
        .await
    }

    /// Runs the work under the grant lock, on the keeper: a caller that is no longer polled must not
    /// block the others.
    async fn one_at_a_time<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let leases = self.clone();
        keeper::run(async move {
            let _granting = leases.granting.lock().await;
            Ok(work.await)
        })
        .await?
    }

    async fn create(&self, length: Length) -> Result<Lease, CallError> {
        let new = self.grant(length.lease).await?;
        let delay_lease = match length.delay {
            0 => None,
            delay => Some(self.grant(new.ttl.as_secs() + delay).await?.id),
        };
        let confirmed = (new.sent, new.term);
        Ok(Lease::new(new.id, delay_lease, length, new.ttl, confirmed))
    }

    /// Grants a new lease.
    pub(crate) async fn grant(&self, ttl: u64) -> Result<NewLease, CallError> {
        let id = self.next_id();
        let request = LeaseGrantRequest {
            ttl: i64::try_from(ttl).unwrap_or(i64::MAX),
            id,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        for last in [false, true] {
            let mut sent = self.session.clock.now();
            let reply: Result<LeaseGrantResponse, _> = self.session.call(path, request).await;
            let (ttl, term) = match reply {
                Ok(reply) => ttl_and_term(reply.ttl, reply.header)?,
                // The first request has arrived; only its reply was lost.
                Err(error) if error.is_lease_there() => {
                    sent = self.session.clock.now();
                    self.keep_alive_id(id).await?
                }
                Err(error) if last || !error.is_broken() => return Err(error),
                Err(_) => continue,
            };
            return Ok(NewLease {
                id,
                sent,
                ttl,
                term,
            });
        }
        Err(unexpected_reply().into())
    }

    /// Extends a lease, then its delay lease; `false` if either does not exist any more.
    ///
    /// A member that has lost its leadership may still confirm a keep-alive. So the confirmation counts
    /// only once a later reply that needs a majority has the same term; see [`Self::ensure`].
    pub(crate) async fn keep_alive(&self, lease: &Lease) -> Result<bool, CallError> {
        if lease.is_dead() {
            return Ok(false);
        }
        let sent = self.session.clock.now();
        let (ttl, term) = self.keep_alive_id(lease.id).await?;
        if ttl.is_zero() {
            self.mark_dead(lease);
            return Ok(false);
        }
        if let Some(delay_lease) = lease.delay_lease {
            let (ttl, _) = self.keep_alive_id(delay_lease).await?;
            if ttl.is_zero() {
                // No lock-delay would follow an unclean end: a new pair is needed.
                self.mark_dead(lease);
                return Ok(false);
            }
        }
        lease.confirm(sent, term);
        Ok(true)
    }

    async fn keep_alive_id(&self, id: i64) -> Result<(Duration, u64), CallError> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let message = tokio_stream::iter([LeaseKeepAliveRequest { id }]);
        let (live, mut stream) = self.session.stream(path, message).await?;
        let reply: LeaseKeepAliveResponse = self.session.next_message(&live, &mut stream).await?;
        if reply.id != id {
            return Err(unexpected_reply().into());
        }
        Ok(ttl_and_term(reply.ttl, reply.header)?)
    }

    /// The lease has ended: it is removed from the pool.
    fn mark_dead(&self, lease: &Lease) {
        lease.set_dead();
        let mut pool = self.pool();
        if pool
            .get(&lease.length)
            .is_some_and(|other| other.id == lease.id)
        {
            pool.remove(&lease.length);
        }
    }

    /// Ensures that the lease lives until `until`, given its last confirmation and the term of a majority
    /// reply to a request that was sent after that confirmation.
    ///
    /// A new leader restarts the full time of each lease at its election. So if the terms are equal, the
    /// confirmation came from the leader that the majority still follows. If they differ, the lease is
    /// extended and checked again.
    pub(crate) async fn ensure(
        &self,
        lease: &Lease,
        confirmed: Confirmed,
        term: u64,
        until: BootTime,
    ) -> Result<(), CallError> {
        if confirmed.term == term && confirmed.until >= until {
            return Ok(());
        }
        for _ in 0..3 {
            if !self.keep_alive(lease).await? {
                let error = Error::new(ErrorKind::Unreachable, "the lease ended meanwhile");
                return Err(error.with_effect(Effect::Possible).into());
            }
            if self.majority_term().await? == lease.confirmed().term {
                return Ok(());
            }
        }
        let error = Error::new(ErrorKind::Unreachable, "the leader of etcd keeps changing");
        Err(error.with_effect(Effect::Possible).into())
    }

    /// The term, from a linearizable read: only a leader with a majority can answer it.
    async fn majority_term(&self) -> Result<u64, CallError> {
        let request = RangeRequest {
            key: self.any_key.clone(),
            count_only: true,
            ..RangeRequest::default()
        };
        let reply: RangeResponse = self.session.call("/etcdserverpb.KV/Range", request).await?;
        Ok(revision_and_term(reply.header)?.1)
    }

    /// A request failed because a lease does not exist. Which one is unknown, so neither this lease nor the
    /// retention lease is used again.
    pub(crate) fn discard(&self, lease: &Lease) {
        self.mark_dead(lease);
        *self.current_retention() = None;
    }

    /// Whether there is no lease to revoke.
    pub(crate) fn is_empty(&self) -> bool {
        self.pool().is_empty()
    }

    /// Revokes all leases, and deletes with them the keys that are attached.
    pub(crate) async fn revoke_all(&self, delay_leases: bool) -> Result<()> {
        let leases: Vec<_> = self.pool().drain().map(|(_, lease)| lease).collect();
        for lease in leases {
            lease.set_dead();
            let delay_lease = lease.delay_lease.filter(|_| delay_leases);
            for id in [Some(lease.id), delay_lease].into_iter().flatten() {
                let path = "/etcdserverpb.Lease/LeaseRevoke";
                let request = LeaseRevokeRequest { id };
                let reply: Result<LeaseRevokeResponse, _> = self.session.call(path, request).await;
                match reply {
                    Err(error) if !error.is_lease_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn ttl_and_term(ttl: i64, header: Option<Header>) -> Result<(Duration, u64)> {
    let ttl = u64::try_from(ttl).unwrap_or(0);
    let (_, term) = revision_and_term(header)?;
    Ok((Duration::from_secs(ttl), term))
}
