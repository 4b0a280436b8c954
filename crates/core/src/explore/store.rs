//! One client's connection to the store: every request goes through the simulated network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::messages::{Payload, Reply, Request, refused};
use super::net::{Cut, Net};
use super::tasks::TaskKind;
use crate::store::{
    Admin, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView, ReleaseReply,
    RenewReply, Renewal, Store, StoreInfo, Suspicion, SuspicionRegistry, Suspicions, Wakes,
};
use crate::{BootTime, Clock, Error, ErrorKind, Name, RequestId, Result, valid_for};

#[derive(Debug)]
pub(super) struct RemoteStore {
    client: usize,
    net: Arc<Net>,
    /// The client's own clock.
    clock: Clock,
    suspicions: SuspicionRegistry,
}

impl RemoteStore {
    pub(super) fn new(client: usize, net: Arc<Net>, clock: Clock) -> Self {
        Self {
            client,
            net,
            clock,
            suspicions: SuspicionRegistry::default(),
        }
    }

    pub(super) fn suspect(&self) {
        self.suspicions.deliver(&Suspicion::All);
    }

    async fn call(&self, request: Request) -> Result<Reply> {
        {
            let mut net = self.net.state();
            let client = &mut net.clients[self.client];
            if client.ended {
                return Err(Error::new(ErrorKind::Closed, "the session has ended"));
            }
            if client.cut == Cut::Refused {
                client.trouble = Some(self.clock.now());
                return Err(refused());
            }
        }
        let (answer, reply) = oneshot::channel();
        let payload = Payload::Request(request, Some(answer));
        self.net.send(self.client, payload);
        match reply.await {
            Ok(reply) => reply,
            // Lost silently.
            Err(_) => std::future::pending().await,
        }
    }

    /// The client has read the acknowledgement of the request of `sent`. It counts if the previously
    /// acknowledged one was still valid.
    fn acknowledged(&self, request: RequestId, lease: Duration, sent: BootTime) {
        let mut net = self.net.state();
        let last = net.acknowledged.entry(request).or_insert(sent);
        if self.clock.now() < *last + valid_for(lease) {
            *last = sent.max(*last);
        }
    }
}

fn wrong_reply() -> Error {
    Error::new(ErrorKind::Internal, "a reply to another request")
}

#[async_trait]
impl Store for RemoteStore {
    fn info(&self) -> &StoreInfo {
        self.net.servers[self.client].info()
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let sent = self.clock.now();
        {
            let mut net = self.net.state();
            net.acknowledged.entry(claim.request).or_insert(sent);
            if let (TaskKind::User(user), false) = (net.running, claim.queue) {
                net.tries.entry(user).or_default().push(claim.request);
            }
        }
        match self.call(Request::Claim(claim.clone())).await? {
            Reply::Claim(reply) => {
                if matches!(reply, ClaimReply::Granted(_)) {
                    self.net.state().acknowledged.insert(claim.request, sent);
                }
                Ok(reply)
            }
            _ => Err(wrong_reply()),
        }
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.net.wakes(self.client, claim)
    }

    fn suspicions(&self) -> Suspicions {
        self.suspicions.register()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let sent = self.clock.now();
        match self.call(Request::Renew(renewals.to_vec())).await? {
            Reply::Renew(replies) => {
                for (renewal, reply) in renewals.iter().zip(&replies) {
                    let request = renewal.hold.request;
                    match reply {
                        RenewReply::Held => self.acknowledged(request, renewal.lease, sent),
                        RenewReply::Lost(_) => drop(self.net.state().lost.insert(request)),
                        RenewReply::Unknown => {}
                    }
                }
                Ok(replies)
            }
            _ => Err(wrong_reply()),
        }
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        match self.call(Request::Release(hold.clone())).await? {
            Reply::Release(reply) => Ok(reply),
            _ => Err(wrong_reply()),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.call(Request::Withdraw(claim.clone())).await.map(drop)
    }

    async fn close(&self) -> Result<()> {
        self.call(Request::Close).await.map(drop)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.net.servers[self.client].check(name, seq).await
    }
}

#[async_trait]
impl Admin for RemoteStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.net.servers[self.client].list(prefix).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.net.servers[self.client].inspect(name).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.net.servers[self.client].events(prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        match self.call(Request::Evict(name.clone(), seq)).await? {
            Reply::Evict(evicted) => Ok(evicted),
            _ => Err(wrong_reply()),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}
