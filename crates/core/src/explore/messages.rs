//! Messages of the simulated network, and the effect of a request at the store.

use tokio::sync::oneshot;

use crate::memory::MemoryStore;
use crate::store::{
    Admin, Claim, ClaimReply, Evicted, Hold, ReleaseReply, RenewReply, Renewal, Store, Wake,
    WakeSender,
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

pub(super) enum Payload {
    /// `None`: the client does not wait for the reply any more.
    Request(Request, Option<Answer>),
    Reply(Result<Reply>, Answer),
    Push(Wake, WakeSender),
}

/// One message.
pub(super) struct Message {
    pub(super) id: u64,
    pub(super) client: usize,
    pub(super) payload: Payload,
    /// It arrives later than other messages.
    pub(super) late: bool,
    /// When it was sent, by the store's clock.
    pub(super) sent: BootTime,
}

/// Applies a request to the store.
pub(super) fn apply(server: &MemoryStore, request: &Request) -> Result<Reply> {
    let reply = match request {
        Request::Claim(claim) => poll_once(server.claim(claim)).map(|r| r.map(Reply::Claim)),
        Request::Renew(holds) => poll_once(server.renew(holds)).map(|r| r.map(Reply::Renew)),
        Request::Release(hold) => poll_once(server.release(hold)).map(|r| r.map(Reply::Release)),
        Request::Withdraw(claim) => {
            poll_once(server.withdraw(claim)).map(|r| r.map(|()| Reply::Withdraw))
        }
        Request::Evict(name, seq) => {
            poll_once(server.evict(name, *seq)).map(|r| r.map(Reply::Evict))
        }
        Request::Close => poll_once(server.close()).map(|r| r.map(|()| Reply::Close)),
    };
    reply.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the memory store waits")))
}

/// Polls a future once; its output if it is ready.
pub(super) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
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

/// A request in the trace; the last digits of its id distinguish it from others.
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
