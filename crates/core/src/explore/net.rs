//! What is under way between the clients and the store: requests, replies and pushed grants.
//!
//! Nothing arrives by itself. The exploration picks what arrives next, what is lost, what arrives
//! late and what arrives twice.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tasks::Kind;
use super::wire::{Answer, Flight, Reply, Request, What, apply, poll_now, request_text};
use crate::memory::MemoryStore;
use crate::store::{Claim, ClaimReply, ReleaseReply, Store, WakeSender, Wakes};
use crate::{BootTime, Clock, RequestId, Result};

/// How a client is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    No,
    /// Every new request fails at once.
    Refused,
    /// Nothing arrives until it is healed; then everything does.
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

/// A claim's wakes on their way out of the store.
struct Pipe {
    client: usize,
    from: Wakes,
    to: WakeSender,
}

pub(super) struct State {
    pub(super) flights: Vec<Flight>,
    next: u64,
    pipes: Vec<Pipe>,
    pub(super) clients: Vec<Client>,
    /// Who runs now.
    pub(super) running: Kind,
    /// The requests of the try that each user makes at present.
    pub(super) tries: HashMap<usize, Vec<RequestId>>,
    /// Requests whose callers were promised that they are not granted.
    pub(super) denied: HashSet<RequestId>,
    /// Numbers of holds whose release took effect.
    pub(super) released: HashSet<u64>,
    pub(super) evicted: HashSet<u64>,
    /// Claims of which the client has read in the reply to a renewal that they are lost.
    pub(super) lost: HashSet<RequestId>,
    /// When the client sent what was last acknowledged for a claim, or first asked.
    pub(super) acknowledged: HashMap<RequestId, BootTime>,
    /// A promise that the store saw broken.
    pub(super) wrong: Option<String>,
}

/// The network, and each client's connection to the one store behind it.
pub(super) struct Net {
    state: Mutex<State>,
    pub(super) servers: Vec<Arc<MemoryStore>>,
    /// The store's.
    clock: Clock,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    pub(super) fn new(servers: Vec<Arc<MemoryStore>>, clock: Clock) -> Self {
        let fresh = || Client {
            cut: Cut::No,
            ended: false,
            trouble: None,
        };
        let clients = servers.iter().map(|_| fresh()).collect();
        let state = State {
            flights: Vec::new(),
            next: 0,
            pipes: Vec::new(),
            clients,
            running: Kind::Keeper(0),
            tries: HashMap::new(),
            denied: HashSet::new(),
            released: HashSet::new(),
            evicted: HashSet::new(),
            lost: HashSet::new(),
            acknowledged: HashMap::new(),
            wrong: None,
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

    /// The wakes of a claim, by way of the network.
    pub(super) fn wakes(&self, client: usize, claim: &Claim) -> Wakes {
        let from = self.servers[client].wakes(claim);
        let (to, wakes) = Wakes::channel();
        self.state().pipes.push(Pipe { client, from, to });
        wakes
    }

    pub(super) fn put(&self, client: usize, what: What) {
        self.state().put(client, what, self.clock.now());
    }

    /// Lets a message, or a copy of it, that was sent before take its time.
    pub(super) fn put_late(&self, client: usize, what: What, sent: BootTime) {
        let mut state = self.state();
        state.put(client, what, sent);
        if let Some(flight) = state.flights.last_mut() {
            flight.late = true;
        }
    }

    /// A request arrives; its reply is on its way then.
    pub(super) fn arrive(&self, client: usize, request: &Request, answer: Option<Answer>) {
        let reply = apply(&self.servers[client], request);
        let mut state = self.state();
        state.record(client, request, &reply);
        let now = self.clock.now();
        if let Some(answer) = answer {
            state.put(client, What::Reply(reply, answer), now);
        }
        state.pump(now);
        let ended = match request {
            Request::Release(hold) => Some((&hold.name, hold.request)),
            Request::Withdraw(claim) => Some((&claim.name, claim.request)),
            _ => None,
        };
        // A store remembers the end of a claim for as long as a copy of it can be applied.
        if let Some((name, request)) = ended
            && let Some(latest) = state.latest(request)
        {
            self.servers[client].keep(name, request, latest);
        }
    }

    /// Whether a copy of a claim that nobody waits for comes too late to be applied.
    pub(super) fn is_too_late(&self, request: &Request, sent: BootTime) -> bool {
        match request {
            Request::Claim(claim) => self.clock.now() > sent + claim.lease,
            _ => false,
        }
    }
}

impl State {
    fn put(&mut self, client: usize, what: What, sent: BootTime) {
        self.next += 1;
        self.flights.push(Flight {
            id: self.next,
            client,
            what,
            late: false,
            sent,
        });
    }

    /// Until when a copy of this claim that is under way can be applied.
    fn latest(&self, request: RequestId) -> Option<BootTime> {
        let until = |flight: &Flight| match &flight.what {
            What::Request(Request::Claim(claim), _) if claim.request == request => {
                Some(flight.sent + claim.lease)
            }
            _ => None,
        };
        self.flights.iter().filter_map(until).max()
    }

    /// Moves what the store has pushed onto the network.
    fn pump(&mut self, now: BootTime) {
        let mut pipes = std::mem::take(&mut self.pipes);
        pipes.retain_mut(|pipe| {
            while let Some(wake) = poll_now(pipe.from.next()) {
                match wake {
                    Some(wake) => self.put(pipe.client, What::Push(wake, pipe.to.clone()), now),
                    None => return false,
                }
            }
            !pipe.to.is_closed()
        });
        self.pipes = pipes;
    }

    fn record(&mut self, client: usize, request: &Request, reply: &Result<Reply>) {
        match (request, reply) {
            (Request::Claim(claim), Ok(Reply::Claim(ClaimReply::Granted(_))))
                if self.denied.contains(&claim.request) =>
            {
                let text = "a claim is granted that was reported as not acquired";
                self.wrong = Some(format!("{text}: {}", request_text(request)));
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
