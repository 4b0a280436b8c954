//! A layer between the engine and the store that records every call.

use std::sync::Arc;

use async_trait::async_trait;
use clinch::store::{
    Admin, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView, ReleaseReply,
    RenewReply, Renewal, RequestId, Store, StoreInfo, Suspicions, Wakes,
};
use clinch::{Error, Name, Result};

use crate::history::{Answer, Call, CallKind, Event, Recorder, now};

/// A store whose claims, renewals, releases and withdrawals are recorded.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) inner: Arc<dyn Admin>,
    pub(super) recorder: Recorder,
    pub(super) process: u32,
}

/// A call under way. It is recorded when it ends, as unknown if its future is dropped.
struct Under<'a> {
    recorder: &'a Recorder,
    call: Call,
}

impl Under<'_> {
    fn answered(mut self, answer: Answer) {
        self.call.answer = answer;
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.call.reply = now();
        self.recorder.write(&Event::Call(self.call.clone()));
    }
}

impl Tap {
    fn begin(&self, call: CallKind, name: &Name, request: RequestId) -> Under<'_> {
        Under {
            recorder: &self.recorder,
            call: Call {
                process: self.process,
                call,
                lock: name.as_str().to_owned(),
                request: format!("{:x}", request.as_u128()),
                send: now(),
                reply: 0,
                answer: Answer::Unknown,
                reason: None,
                seq: None,
                lease: 0,
            },
        }
    }
}

fn failure(error: &Error) -> Answer {
    match error.may_have_taken_effect() {
        true => Answer::Unknown,
        false => Answer::Refused,
    }
}

fn lease(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Store for Tap {
    fn info(&self) -> &StoreInfo {
        self.inner.info()
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let mut under = self.begin(CallKind::Claim, &claim.name, claim.request);
        under.call.lease = lease(claim.lease);
        let reply = self.inner.claim(claim).await;
        let answer = match &reply {
            Ok(ClaimReply::Granted(grant)) => {
                under.call.seq = Some(grant.seq);
                Answer::Granted
            }
            Ok(ClaimReply::Queued(_)) => Answer::Queued,
            Ok(ClaimReply::Busy(_)) => Answer::Busy,
            Ok(ClaimReply::Gone(_)) => Answer::Gone,
            Err(error) => failure(error),
        };
        under.answered(answer);
        reply
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.inner.wakes(claim)
    }

    fn suspicions(&self) -> Suspicions {
        self.inner.suspicions()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let mut under = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let hold = &renewal.hold;
            let mut one = self.begin(CallKind::Renew, &hold.name, hold.request);
            one.call.lease = lease(renewal.lease);
            one.call.seq = Some(hold.seq);
            under.push(one);
        }
        let replies = self.inner.renew(renewals).await;
        match &replies {
            Ok(replies) => {
                for (one, reply) in under.into_iter().zip(replies) {
                    one.answered(match reply {
                        RenewReply::Held => Answer::Held,
                        RenewReply::Lost(_) => Answer::Lost,
                        _ => Answer::Unknown,
                    });
                }
            }
            Err(error) => under
                .into_iter()
                .for_each(|one| one.answered(failure(error))),
        }
        replies
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let mut under = self.begin(CallKind::Release, &hold.name, hold.request);
        under.call.seq = Some(hold.seq);
        let reply = self.inner.release(hold).await;
        under.answered(match &reply {
            Ok(reply) if reply.was_held() => Answer::Released,
            Ok(_) => Answer::WasLost,
            Err(error) => failure(error),
        });
        reply
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let under = self.begin(CallKind::Withdraw, &claim.name, claim.request);
        let reply = self.inner.withdraw(claim).await;
        under.answered(match &reply {
            Ok(()) => Answer::Done,
            Err(error) => failure(error),
        });
        reply
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.inner.check(name, seq).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl Admin for Tap {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.inner.list(prefix).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.inner.inspect(name).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.inner.events(prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.inner.evict(name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.inner.doctor().await
    }
}
