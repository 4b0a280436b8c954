//! The leases of one client: one for each length, shared by all claims of that length.
//!
//! Nothing is kept alive by itself: a lease is extended when the engine above asks for a claim or a
//! renewal, so a client whose engine stands still loses what it holds, as it should.
//!
//! A lease is asked for a little longer than the claims that hang on it. A claim that comes while
//! that little is not used up needs no keep-alive of its own: it is one request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Effect, Error, ErrorKind, Result, keeper};
use tonic::codegen::tokio_stream;

use crate::error::{Trouble, strange};
use crate::lease::{Lease, Length, seconds};
use crate::session::Session;
use crate::wire::{
    Header, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse,
};

/// The leases of one client.
#[derive(Debug)]
pub(crate) struct Leases {
    session: Arc<Session>,
    /// A key of our namespace: what is asked for when only the answer counts.
    any_key: Vec<u8>,
    client: u64,
    given: AtomicU64,
    pool: Mutex<HashMap<Length, Arc<Lease>>>,
    granting: tokio::sync::Mutex<()>,
    /// What keys hang on that are to be forgotten some time later.
    memory: Mutex<Option<(i64, BootTime)>>,
}

impl Leases {
    pub(crate) fn new(session: Arc<Session>, client: u64, any_key: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            session,
            any_key,
            client,
            given: AtomicU64::default(),
            pool: Mutex::default(),
            granting: tokio::sync::Mutex::default(),
            memory: Mutex::default(),
        })
    }

    fn pool(&self) -> MutexGuard<'_, HashMap<Length, Arc<Lease>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nobody else has: of the client's own random number and a counter.
    fn id(&self) -> i64 {
        let given = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = self
            .client
            .wrapping_add(given.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        i64::try_from(mixed >> 1).unwrap_or(1).max(1)
    }

    fn good(&self, length: Length, until: BootTime) -> Option<Arc<Lease>> {
        let lease = self.pool().get(&length).cloned();
        lease.filter(|lease| !lease.is_dead() && lease.until() >= until)
    }

    /// The lease for claims of this length, good until then at least.
    pub(crate) async fn get(
        self: &Arc<Self>,
        lease: Duration,
        delay: Duration,
        until: BootTime,
    ) -> Result<Arc<Lease>, Trouble> {
        let length = Length::of(lease, delay);
        if let Some(lease) = self.good(length, until) {
            return Ok(lease);
        }
        let leases = self.clone();
        self.alone(async move {
            // Those who came meanwhile find it done.
            if let Some(lease) = leases.good(length, until) {
                return Ok(lease);
            }
            let old = leases.pool().get(&length).cloned();
            if let Some(lease) = old
                && lease.until() > leases.session.clock.now()
                && leases.keep(&lease).await?
            {
                return Ok(lease);
            }
            let new = Arc::new(leases.make(length).await?);
            leases.pool().insert(length, new.clone());
            Ok(new)
        })
        .await
    }

    /// One at a time, and on the keeper: a caller that is polled no more would keep all others out.
    async fn alone<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
    ) -> Result<T, Trouble> {
        let leases = self.clone();
        keeper::run(async move {
            let _granting = leases.granting.lock().await;
            Ok(work.await)
        })
        .await?
    }

    async fn make(&self, length: Length) -> Result<Lease, Trouble> {
        let (id, sent, ttl, term) = self.grant(length.0).await?;
        let companion = match length.1 {
            0 => None,
            delay => Some(self.grant(ttl.as_secs() + delay).await?.0),
        };
        Ok(Lease::new(id, companion, length, ttl, (sent, term)))
    }

    /// A new lease: its number, when it was asked for, its length, the term.
    pub(crate) async fn grant(&self, ttl: u64) -> Result<(i64, BootTime, Duration, u64), Trouble> {
        let id = self.id();
        let request = LeaseGrantRequest {
            ttl: i64::try_from(ttl).unwrap_or(i64::MAX),
            id,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        for last in [false, true] {
            let sent = self.session.clock.now();
            let reply: Result<LeaseGrantResponse, _> = self.session.call(path, request).await;
            match reply {
                Ok(reply) => {
                    let ttl = u64::try_from(reply.ttl).unwrap_or(0);
                    let (_, term) = header(reply.header)?;
                    return Ok((id, sent, Duration::from_secs(ttl), term));
                }
                // The first one has arrived, and only its reply was lost.
                Err(trouble) if trouble.is_lease_there() => {
                    let sent = self.session.clock.now();
                    let (ttl, term) = self.keep_one(id).await?;
                    return Ok((id, sent, ttl, term));
                }
                Err(trouble) if last || !trouble.is_broken() => return Err(trouble),
                Err(_) => {}
            }
        }
        Err(strange().into())
    }

    /// Extends a lease, and its companion after it; `false` if it is not there any more.
    ///
    /// What a member that has lost its leadership says is worth nothing. So the word counts only once a
    /// later answer of the cluster, which needs a majority, bears the same term; see [`Self::proven`].
    pub(crate) async fn keep(&self, lease: &Lease) -> Result<bool, Trouble> {
        if lease.is_dead() {
            return Ok(false);
        }
        let sent = self.session.clock.now();
        let (ttl, term) = self.keep_one(lease.id).await?;
        if ttl.is_zero() {
            self.bury(lease);
            return Ok(false);
        }
        if let Some(companion) = lease.companion {
            let (ttl, _) = self.keep_one(companion).await?;
            if ttl.is_zero() {
                // Nothing would stay of an unclean end: better a new pair.
                self.bury(lease);
                return Ok(false);
            }
        }
        lease.lives(sent, term);
        Ok(true)
    }

    async fn keep_one(&self, id: i64) -> Result<(Duration, u64), Trouble> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let message = tokio_stream::iter([LeaseKeepAliveRequest { id }]);
        let (live, mut stream) = self.session.stream(path, message).await?;
        let reply: LeaseKeepAliveResponse = self.session.soon(&live, &mut stream).await?;
        if reply.id != id {
            return Err(strange().into());
        }
        let ttl = u64::try_from(reply.ttl).unwrap_or(0);
        let (_, term) = header(reply.header)?;
        Ok((Duration::from_secs(ttl), term))
    }

    /// It has ended: nobody gets it any more.
    pub(crate) fn bury(&self, lease: &Lease) {
        lease.dies();
        let mut pool = self.pool();
        if pool
            .get(&lease.length)
            .is_some_and(|other| other.id == lease.id)
        {
            pool.remove(&lease.length);
        }
    }

    /// Makes sure that the lease is good until then, given a word about it and the term of an answer of
    /// the cluster that was asked for after that word.
    ///
    /// A new leader lets each lease run anew from its own election on. So as long as the term is the
    /// same, the word was of the leader that the majority still follows; when it has changed, the lease
    /// is asked for once more.
    pub(crate) async fn proven(
        &self,
        lease: &Lease,
        word: (BootTime, u64),
        term: u64,
        until: BootTime,
    ) -> Result<(), Trouble> {
        if word.1 == term && word.0 >= until {
            return Ok(());
        }
        for _ in 0..3 {
            if !self.keep(lease).await? {
                let error = Error::new(ErrorKind::Unreachable, "the lease ended meanwhile");
                return Err(error.with_effect(Effect::Possible).into());
            }
            if self.majority().await? == lease.word().1 {
                return Ok(());
            }
        }
        let error = Error::new(ErrorKind::Unreachable, "the leader of etcd keeps changing");
        Err(error.with_effect(Effect::Possible).into())
    }

    /// Asks what only a leader with a majority can answer: the term.
    async fn majority(&self) -> Result<u64, Trouble> {
        let request = RangeRequest {
            key: self.any_key.clone(),
            count_only: true,
            ..RangeRequest::default()
        };
        let reply: RangeResponse = self.session.call("/etcdserverpb.KV/Range", request).await?;
        Ok(header(reply.header)?.1)
    }

    /// What keys hang on that are to be forgotten after a while: good for at least that long.
    pub(crate) async fn memory(self: &Arc<Self>) -> Result<i64, Trouble> {
        if let Some(id) = self.fresh_memory() {
            return Ok(id);
        }
        let leases = self.clone();
        self.alone(async move {
            if let Some(id) = leases.fresh_memory() {
                return Ok(id);
            }
            // It is used for a third of its life.
            let ttl = seconds(leases.session.config.remember) * 3;
            let (id, sent, ..) = leases.grant(ttl).await?;
            *leases.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some((id, sent));
            Ok(id)
        })
        .await
    }

    fn fresh_memory(&self) -> Option<i64> {
        let (now, remember) = (self.session.clock.now(), self.session.config.remember);
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = memory.filter(|(_, sent)| now.since(*sent) < remember);
        fresh.map(|(id, _)| id)
    }

    /// A lease was not found: which one it was does not matter, all are asked for anew.
    pub(crate) fn doubt(&self, lease: &Lease) {
        self.bury(lease);
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The memory was not found: another one is asked for.
    pub(crate) fn forget_memory(&self, id: i64) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_some_and(|(current, _)| current == id) {
            *memory = None;
        }
    }

    /// Whether there is none to give back.
    pub(crate) fn is_empty(&self) -> bool {
        self.pool().is_empty()
    }

    /// Gives all leases back, with what hangs on them.
    pub(crate) async fn revoke_all(&self, companions: bool) -> Result<()> {
        let leases: Vec<_> = self.pool().drain().map(|(_, lease)| lease).collect();
        for lease in leases {
            lease.dies();
            let companion = lease.companion.filter(|_| companions);
            for id in [Some(lease.id), companion].into_iter().flatten() {
                let path = "/etcdserverpb.Lease/LeaseRevoke";
                let request = LeaseRevokeRequest { id };
                let reply: Result<LeaseRevokeResponse, _> = self.session.call(path, request).await;
                match reply {
                    Err(trouble) if !trouble.is_lease_not_found() => return Err(trouble.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Revision and term of a reply.
pub(crate) fn header(header: Option<Header>) -> Result<(u64, u64), Trouble> {
    let header = header.ok_or_else(strange)?;
    Ok((crate::mirror::revision(header.revision), header.raft_term))
}
