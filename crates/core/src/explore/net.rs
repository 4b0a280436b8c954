//! Simulated network between the clients and the store: requests, replies and pushed grants.
//!
//! The exploration decides which message arrives next, is lost, arrives late or arrives twice.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::messages::{Answer, Message, Payload, Reply, Request, apply, poll_once, request_text};
use super::tasks::TaskKind;
use crate::memory::MemoryStore;
use crate::store::{Claim, ClaimReply, ReleaseReply, Store, WakeSender, Wakes};
use crate::{BootTime, Clock, RequestId, Result};

/// How a client is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    No,
    /// Every new request fails at once.
    Refused,
    /// Messages wait until the cut is healed.
    Held,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) cut: Cut,
    /// Its session has ended.
    pub(super) ended: bool,
    /// When, by its own clock, a fault or a delay last touched it.
    pub(super) trouble: Option<BootTime>,
}

/// Forwards the wakes of one claim from the store to the network.
struct PushForwarder {
    client: usize,
    from: Wakes,
    to: WakeSender,
}

pub(super) struct State {
    pub(super) messages: Vec<Message>,
    next: u64,
    forwarders: Vec<PushForwarder>,
    pub(super) clients: Vec<Client>,
    /// The task that runs now.
    pub(super) running: TaskKind,
    /// Request ids of the current try of each user.
    pub(super) tries: HashMap<usize, Vec<RequestId>>,
    /// Requests that were reported as "not acquired": they must never be granted.
    pub(super) denied: HashSet<RequestId>,
    /// Sequence numbers of holds whose release took effect.
    pub(super) released: HashSet<u64>,
    pub(super) evicted: HashSet<u64>,
    /// Claims that a renewal reply, read by the client, has reported as lost.
    pub(super) lost: HashSet<RequestId>,
    /// Send time of the last acknowledged request of a claim; before that, of its first request.
    pub(super) acknowledged: HashMap<RequestId, BootTime>,
    /// A violation seen at the store.
    pub(super) violation: Option<String>,
}

/// The network, and each client's connection to the one store behind it.
pub(super) struct Net {
    state: Mutex<State>,
    pub(super) servers: Vec<Arc<MemoryStore>>,
    /// The store's clock.
    clock: Clock,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    pub(super) fn new(servers: Vec<Arc<MemoryStore>>, clock: Clock) -> Self {
        let new_client = || Client {
            cut: Cut::No,
            ended: false,
            trouble: None,
        };
        let clients = servers.iter().map(|_| new_client()).collect();
        let state = State {
            messages: Vec::new(),
            next: 0,
            forwarders: Vec::new(),
            clients,
            running: TaskKind::Keeper(0),
            tries: HashMap::new(),
            denied: HashSet::new(),
            released: HashSet::new(),
            evicted: HashSet::new(),
            lost: HashSet::new(),
            acknowledged: HashMap::new(),
            violation: None,
        };
        Self {
            state: Mutex::new(state),
            servers,
            clock,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wakes of a claim, through the network.
    pub(super) fn wakes(&self, client: usize, claim: &Claim) -> Wakes {
        let from = self.servers[client].wakes(claim);
        let (to, wakes) = Wakes::channel();
        self.state()
            .forwarders
            .push(PushForwarder { client, from, to });
        wakes
    }

    pub(super) fn send(&self, client: usize, payload: Payload) {
        self.state().send(client, payload, self.clock.now());
    }

    /// Delays a message, or a copy of one, that was sent at `sent`.
    pub(super) fn send_late(&self, client: usize, payload: Payload, sent: BootTime) {
        let mut state = self.state();
        state.send(client, payload, sent);
        if let Some(message) = state.messages.last_mut() {
            message.late = true;
        }
    }

    /// A request arrives at the store, which sends its reply.
    pub(super) fn arrive(&self, client: usize, request: &Request, answer: Option<Answer>) {
        let reply = apply(&self.servers[client], request);
        let mut state = self.state();
        state.check_reply(client, request, &reply);
        let now = self.clock.now();
        if let Some(answer) = answer {
            state.send(client, Payload::Reply(reply, answer), now);
        }
        state.forward_pushes(now);
        let ended = match request {
            Request::Release(hold) => Some((&hold.name, hold.request)),
            Request::Withdraw(claim) => Some((&claim.name, claim.request)),
            _ => None,
        };
        // A store keeps the tombstone of a claim while a copy of the claim can still be applied.
        if let Some((name, request)) = ended
            && let Some(latest) = state.latest(request)
        {
            self.servers[client].keep(name, request, latest);
        }
    }

    /// Whether a copy of a claim is too late to be applied.
    pub(super) fn is_too_late(&self, request: &Request, sent: BootTime) -> bool {
        match request {
            Request::Claim(claim) => self.clock.now() > sent + claim.lease,
            _ => false,
        }
    }
}

impl State {
    fn send(&mut self, client: usize, payload: Payload, sent: BootTime) {
        self.next += 1;
        self.messages.push(Message {
            id: self.next,
            client,
            payload,
            late: false,
            sent,
        });
    }

    /// The last moment at which a copy of this claim that is under way can be applied.
    fn latest(&self, request: RequestId) -> Option<BootTime> {
        let until = |message: &Message| match &message.payload {
            Payload::Request(Request::Claim(claim), _) if claim.request == request => {
                Some(message.sent + claim.lease)
            }
            _ => None,
        };
        self.messages.iter().filter_map(until).max()
    }

    /// Moves the wakes that the store has pushed onto the network.
    fn forward_pushes(&mut self, now: BootTime) {
        let mut forwarders = std::mem::take(&mut self.forwarders);
        forwarders.retain_mut(|forwarder| {
            while let Some(wake) = poll_once(forwarder.from.next()) {
                match wake {
                    Some(wake) => self.send(
                        forwarder.client,
                        Payload::Push(wake, forwarder.to.clone()),
                        now,
                    ),
                    None => return false,
                }
            }
            !forwarder.to.is_closed()
        });
        self.forwarders = forwarders;
    }

    fn check_reply(&mut self, client: usize, request: &Request, reply: &Result<Reply>) {
        match (request, reply) {
            (Request::Claim(claim), Ok(Reply::Claim(ClaimReply::Granted(_))))
                if self.denied.contains(&claim.request) =>
            {
                let text = "a claim is granted that was reported as not acquired";
                self.violation = Some(format!("{text}: {}", request_text(request)));
            }
            (Request::Release(hold), Ok(Reply::Release(ReleaseReply::Released))) => {
                self.released.insert(hold.seq);
            }
            (Request::Evict(..), Ok(Reply::Evict(evicted))) => {
                self.evicted.extend(&evicted.seqs);
            }
            (Request::Close, _) => self.clients[client].ended = true,
            _ => {}
        }
    }
}
