//! `GuestStore`: a guest in the locks of another library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Busy, Capability, Claim, ClaimReply, Freshness, Grant, Hold, LostReason, OpenContext,
    PartyView, Queued, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Suspicions, Wakes,
};
use clinch_core::{ClientInfo, Error, ErrorKind, Name, OwnerId, RequestId, Result, keeper};

use super::layout::{Layout, mix, seq, unknown_client};
use super::reply::Reply;
use super::waiters;
use crate::config::{Config, Deployment, Topology};
use crate::connection::{Servers, Session};
use crate::error::unexpected;
use crate::info;
use crate::ledger::{Ledger, TRIES, too_late, window};
use crate::record::millis;
use crate::scripts::Call;
use crate::wakes::PushRouter;

/// The most locks in one call: they occupy the server for well under a millisecond.
const MOST: usize = 100;
/// The pause of a waiter of a string lock between two attempts, in ms: releases are not published.
const PAUSE: std::ops::Range<u64> = 50..200;

/// A guest in the locks of another library, on one Redis.
///
/// ```
/// let info = clinch_redis::GuestStore::describe("redis?layout=redisson");
/// assert!(info.capabilities.evict && !info.capabilities.tokens);
/// ```
#[derive(Debug)]
pub struct GuestStore {
    pub(super) info: StoreInfo,
    layout: Layout,
    me: Arc<ClientInfo>,
    pub(super) config: Arc<Config>,
    pub(super) session: Arc<Session>,
    pub(super) servers: Servers,
    pushes: Arc<PushRouter>,
    /// Attempts so far, for the jitter.
    attempts: AtomicU64,
    ledger: Ledger,
}

impl GuestStore {
    /// Connects to the server and checks that it can keep locks.
    pub(crate) async fn connect(
        config: Arc<Config>,
        layout: Layout,
        deployment: Deployment,
        context: OpenContext,
    ) -> Result<Self> {
        let scheme = scheme(config.scheme, layout);
        let Deployment::Single(Topology::One(address)) = deployment else {
            return Err(unsupported(
                "a guest layout needs one server: the other libraries keep these locks there",
                "use redis://, rediss:// or redis+unix:// with this layout",
            ));
        };
        if config.strict.is_some() {
            return Err(unsupported(
                "durability=strict needs keys that other libraries do not keep",
                "leave durability or layout away",
            ));
        }
        let pushes = PushRouter::new(String::new(), None);
        let session = Session::new(
            config.clone(),
            Box::new(address),
            pushes.clone(),
            context.operations.clone(),
        );
        let store = Self {
            info: Self::describe(scheme),
            layout,
            me: context.identity.info().clone(),
            servers: Servers::One(session.clone(), scheme),
            config,
            session,
            pushes,
            attempts: AtomicU64::new(0),
            ledger: Ledger::default(),
        };
        let servers = store.servers.clone();
        keeper::run(async move { servers.connect().await }).await?;
        Ok(store)
    }

    /// The properties of the guest with this scheme and layout, without opening it.
    ///
    /// ```
    /// let plain = clinch_redis::GuestStore::describe("redis?layout=plain");
    /// assert!(!plain.capabilities.queue && !plain.capabilities.list);
    /// ```
    pub fn describe(scheme: &'static str) -> StoreInfo {
        info::guest(scheme)
    }

    fn owner(&self, request: RequestId) -> String {
        self.layout.owner(request, &self.me)
    }

    /// The owner's text of a hold; `None` if the number does not belong to the request.
    fn held_by(&self, hold: &Hold) -> Option<String> {
        Some(self.owner(hold.request)).filter(|owner| seq(owner) == hold.seq)
    }

    /// One operation on these locks: name, owner and lease of each. Until `moment` a claim may be applied,
    /// or its end must be remembered.
    async fn call(
        &self,
        operation: &str,
        wait: bool,
        moment: u64,
        locks: &[(&Name, &str, Duration)],
    ) -> Result<Vec<Reply>> {
        let mut keys = Vec::new();
        let mut args: Vec<Vec<u8>> = vec![
            operation.into(),
            text(self.config.remember),
            moment.to_string().into_bytes(),
        ];
        for (name, owner, lease) in locks {
            keys.extend(self.layout.keys(name));
            args.push((*owner).into());
            args.push(text(*lease));
            args.extend(self.layout.channel(name).map(String::into_bytes));
        }
        let call = Call {
            wait: if wait { self.config.wait } else { 0 },
            ..Call::new(self.layout.script(), keys, args)
        };
        let servers = self.servers.clone();
        let reply = keeper::run(async move { servers.call(call).await }).await;
        let replies = Reply::read(reply?).filter(|replies| replies.len() == locks.len());
        replies.ok_or_else(|| unexpected(self.info.scheme))
    }

    /// One operation on one lock.
    pub(super) async fn one(
        &self,
        operation: &str,
        moment: u64,
        name: &Name,
        owner: &str,
        lease: Duration,
    ) -> Result<Reply> {
        let lock = (name, owner, lease);
        // Replicas must have a grant before it counts.
        let wait = operation == "claim";
        let replies = self.call(operation, wait, moment, &[lock]).await?;
        match replies.into_iter().next() {
            Some(Reply::Clash(kind, fields)) => Err(self.layout.clash(name, &kind, &fields)),
            Some(reply) => Ok(reply),
            None => Err(unexpected(self.info.scheme)),
        }
    }

    /// Claims, with the latest time at which the server may apply it; again if it arrived too late.
    async fn claim_in_time(&self, claim: &Claim, owner: &str) -> Result<Reply> {
        let (request, lease) = (claim.request, claim.lease);
        let window = window(self.config.timeout, lease);
        for _ in 0..TRIES {
            let latest = self
                .ledger
                .sent(request, self.session.clock().now(), window);
            let reply = self.one("claim", latest, &claim.name, owner, lease).await;
            let lost = reply.as_ref().is_err_and(Error::may_have_taken_effect);
            self.ledger.resolved(request, lost);
            match reply? {
                Reply::Late(now) => self.session.clock().update(now),
                reply => return Ok(reply),
            }
        }
        Err(too_late())
    }

    /// Releases or withdraws.
    async fn end(
        &self,
        operation: &str,
        request: RequestId,
        name: &Name,
        owner: &str,
    ) -> Result<Reply> {
        let keep = self.ledger.latest(request);
        let reply = self
            .one(operation, keep, name, owner, Duration::ZERO)
            .await?;
        self.ledger.ended(request);
        Ok(reply)
    }

    /// When a waiter tries again.
    fn next_attempt(&self, left: Option<Duration>) -> Option<Duration> {
        if self.layout == Layout::Redisson {
            return left;
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let random = mix(self.me.id.get() ^ attempt) % (PAUSE.end - PAUSE.start);
        let pause = Duration::from_millis(PAUSE.start + random);
        Some(left.map_or(pause, |left| left.min(pause)))
    }

    pub(super) fn party(&self, owner: String, count: &str, left: Option<Duration>) -> PartyView {
        let mut party = PartyView::new(OwnerId::new(owner.as_str()), unknown_client());
        party.lease_left = left.unwrap_or(Duration::MAX);
        self.layout.describe(&owner, count, &mut party);
        party
    }
}

#[async_trait]
impl Store for GuestStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let owner = self.owner(claim.request);
        Ok(match self.claim_in_time(claim, &owner).await? {
            Reply::Granted => ClaimReply::Granted(Grant::new(seq(&owner), None)),
            Reply::Taken(left) if claim.queue => {
                let queued = Queued::new(0, self.next_attempt(left));
                // A subscription begins with a hint.
                ClaimReply::Queued(queued.with_wakes_kept(true))
            }
            Reply::Taken(retry_after) => ClaimReply::Busy(Busy::new(retry_after)),
            Reply::Gone(reason) => ClaimReply::Gone(reason),
            _ => return Err(unexpected(self.info.scheme)),
        })
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        match self.layout.channel(&claim.name) {
            Some(channel) => waiters::listen(&self.pushes, &self.session, channel),
            // Releases are not published: the stream ends at once.
            None => Wakes::channel().1,
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let owners: Vec<_> = renewals.iter().map(|r| self.held_by(&r.hold)).collect();
        let mut replies = vec![RenewReply::Lost(LostReason::Forgotten); renewals.len()];
        // A number that does not belong to its request was never granted.
        let known: Vec<_> = renewals
            .iter()
            .zip(&owners)
            .zip(&mut replies)
            .filter_map(|((renewal, owner), reply)| Some((renewal, owner.as_deref()?, reply)))
            .collect();
        let mut known = known.into_iter();
        loop {
            let batch: Vec<_> = known.by_ref().take(MOST).collect();
            if batch.is_empty() {
                return Ok(replies);
            }
            let locks: Vec<_> = batch
                .iter()
                .map(|(renewal, owner, _)| (&renewal.hold.name, *owner, renewal.lease))
                .collect();
            let answers = self.call("renew", true, 0, &locks).await?;
            for ((_, _, reply), answer) in batch.into_iter().zip(answers) {
                *reply = match answer {
                    Reply::Held => RenewReply::Held,
                    Reply::Lost(reason) => RenewReply::Lost(reason),
                    _ => return Err(unexpected(self.info.scheme)),
                };
            }
        }
    }

    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let Some(owner) = self.held_by(hold) else {
            return Ok(ReleaseReply::WasLost(LostReason::Forgotten));
        };
        let reply = self.end("release", hold.request, &hold.name, &owner);
        Ok(match reply.await? {
            Reply::Held => ReleaseReply::Released,
            Reply::Unpublished => {
                tracing::warn!(
                    lock = %hold.name,
                    "this user may not publish on the lock's channel: waiters sleep until the lease ends"
                );
                ReleaseReply::Released
            }
            Reply::Lost(reason) => ReleaseReply::WasLost(reason),
            _ => return Err(unexpected(self.info.scheme)),
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let owner = self.owner(claim.request);
        let reply = self.end("withdraw", claim.request, &claim.name, &owner);
        reply.await.map(|_| ())
    }

    async fn check(&self, _name: &Name, _seq: u64) -> Result<Freshness> {
        Err(missing(Capability::Tokens))
    }

    async fn close(&self) -> Result<()> {
        self.pushes.close();
        self.session.reset();
        Ok(())
    }
}

impl Drop for GuestStore {
    fn drop(&mut self) {
        self.pushes.close();
    }
}

/// The name of the store: the scheme with the layout.
fn scheme(scheme: &str, layout: Layout) -> &'static str {
    match (scheme, layout) {
        ("rediss", Layout::Plain) => "rediss?layout=plain",
        ("rediss", Layout::Redisson) => "rediss?layout=redisson",
        ("redis+unix", Layout::Plain) => "redis+unix?layout=plain",
        ("redis+unix", Layout::Redisson) => "redis+unix?layout=redisson",
        (_, Layout::Plain) => "redis?layout=plain",
        (_, Layout::Redisson) => "redis?layout=redisson",
    }
}

fn text(span: Duration) -> Vec<u8> {
    millis(span).to_string().into_bytes()
}

/// Core checks capabilities before; a caller without core gets this.
pub(super) fn missing(capability: Capability) -> Error {
    let text = format!("this layout has no {capability}");
    unsupported(&text, "leave layout away for locks of your own")
}

fn unsupported(message: &str, advice: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_advice(advice)
}
