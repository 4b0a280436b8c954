//! Messages: what they say, and what a request does at the store.

use tokio::sync::oneshot;

use crate::memory::MemoryStore;
use crate::store::{
    Claim, ClaimReply, Evicted, Hold, ReleaseReply, RenewReply, Renewal, Store, Wake, WakeSender,
};
use crate::{BootTime, Effect, Error, ErrorKind, Name, RequestId, Result};

#[derive(Debug, Clone)]
pub(super) enum Request {
    Claim(Claim),
    Renew(Vec<Renewal>),
    Release(Hold),
    Withdraw(Claim),
    Evict(Name, Option<u64>),
    Close,
}

#[derive(Debug)]
pub(super) enum Reply {
    Claim(ClaimReply),
    Renew(Vec<RenewReply>),
    Release(ReleaseReply),
    Withdraw,
    Evict(Evicted),
    Close,
}

/// Where the client waits for its reply.
pub(super) type Answer = oneshot::Sender<Result<Reply>>;

pub(super) enum What {
    /// Without an answer: the client does not wait for it any more.
    Request(Request, Option<Answer>),
    Reply(Result<Reply>, Answer),
    Push(Wake, WakeSender),
}

/// One message.
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) client: usize,
    pub(super) what: What,
    /// It takes its time.
    pub(super) late: bool,
    /// When it was sent, by the store's clock.
    pub(super) sent: BootTime,
}

/// Does at the store what the request asks for.
pub(super) fn apply(server: &MemoryStore, request: &Request) -> Result<Reply> {
    let reply = match request {
        Request::Claim(claim) => poll_now(server.claim(claim)).map(|r| r.map(Reply::Claim)),
        Request::Renew(holds) => poll_now(server.renew(holds)).map(|r| r.map(Reply::Renew)),
        Request::Release(hold) => poll_now(server.release(hold)).map(|r| r.map(Reply::Release)),
        Request::Withdraw(claim) => {
            poll_now(server.withdraw(claim)).map(|r| r.map(|()| Reply::Withdraw))
        }
        Request::Evict(name, seq) => {
            poll_now(server.evict(name, *seq)).map(|r| r.map(Reply::Evict))
        }
        Request::Close => poll_now(server.close()).map(|r| r.map(|()| Reply::Close)),
    };
    reply.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the memory store waits")))
}

/// The output of a future that needs to wait for nothing.
pub(super) fn poll_now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// The error of a request that surely had no effect.
pub(super) fn refused() -> Error {
    Error::new(ErrorKind::Unreachable, "refused")
}

/// The error of a request whose connection broke.
pub(super) fn broken() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection broke").with_effect(Effect::Possible)
}

/// A request as the trace shows it: the last digits of its id tell it from others.
pub(super) fn request_text(request: &Request) -> String {
    let id = |request: RequestId| request.as_u128() & 0xffff_ffff;
    match request {
        Request::Claim(c) => match c.queue {
            true => format!("claim {:?} r{}", c.name.as_str(), id(c.request)),
            false => format!("try {:?} r{}", c.name.as_str(), id(c.request)),
        },
        Request::Renew(all) => {
            let one = |r: &Renewal| format!("{:?} r{}", r.hold.name.as_str(), id(r.hold.request));
            let all: Vec<String> = all.iter().map(one).collect();
            format!("renew {}", all.join(", "))
        }
        Request::Release(h) => format!("release {:?} r{}", h.name.as_str(), id(h.request)),
        Request::Withdraw(c) => format!("withdraw {:?} r{}", c.name.as_str(), id(c.request)),
        Request::Evict(name, _) => format!("evict {:?}", name.as_str()),
        Request::Close => "close".to_owned(),
    }
}
