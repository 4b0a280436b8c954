//! Wakes: which claims of this client wait, and what the rows say of them.
//!
//! One listener for all claims of the client runs while any of them waits. How it is woken is the
//! dialect's business ([`Dialect::listen`]). Wakes are hints: without them, waiters repeat their claims.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Wake, WakeRegistry, Wakes};
use clinch_core::{Clock, Name, RequestId, keeper};
use clinch_kit::backoff::Backoff;
use clinch_kit::closed::Closed;
use clinch_kit::lock;
use tokio::sync::watch;

use crate::client::Client;
use crate::{Dialect, Row};

/// The pause after a failure, at least and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A claim of this client that waits.
#[derive(Debug)]
struct Awaited {
    name: Name,
    /// The last sequence number that its name is known to have granted, to another claim. `None` until
    /// the claim is queued or its row was read.
    seq: Option<u64>,
}

/// Names that are waited for, each with the last sequence number that it is known to have granted.
pub type Names = HashMap<Name, Option<u64>>;

/// The claims of one client that wait.
#[derive(Debug)]
pub struct Waiters {
    client: Arc<Client>,
    registry: WakeRegistry,
    awaited: Mutex<HashMap<RequestId, Awaited>>,
    /// Changes with each claim that begins to wait.
    arrivals: watch::Sender<u64>,
    runs: AtomicBool,
    /// Whether the last attempt to listen has failed.
    failing: AtomicBool,
    closed: Arc<Closed>,
}

impl Waiters {
    pub(crate) fn new(client: Arc<Client>, closed: Arc<Closed>) -> Arc<Self> {
        Arc::new(Self {
            client,
            registry: WakeRegistry::default(),
            awaited: Mutex::default(),
            arrivals: watch::Sender::default(),
            runs: AtomicBool::default(),
            failing: AtomicBool::default(),
            closed,
        })
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<RequestId, Awaited>> {
        lock(&self.awaited)
    }

    fn dialect(&self) -> &dyn Dialect {
        &*self.client.dialect
    }

    /// Whether no claim waits.
    pub fn is_empty(&self) -> bool {
        self.awaited().is_empty()
    }

    /// The names that are waited for.
    pub fn names(&self) -> Names {
        let mut names = HashMap::new();
        for claim in self.awaited().values() {
            let seq = names.entry(claim.name.clone()).or_insert(claim.seq);
            // The least that any of its claims has seen.
            *seq = seq.zip(claim.seq).map(|(one, other)| one.min(other));
        }
        names
    }

    /// Changes with each claim that begins to wait.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// The listener would receive wakes from now on.
    pub fn listening(&self) {
        self.failing.store(false, Ordering::SeqCst);
    }

    /// The rows of `names` were read: wakes claims that were granted, and records how the others stand.
    /// Returns the sum of the rows' sequence numbers.
    pub fn read(&self, names: &Names, rows: Vec<(Vec<u8>, Row)>) -> u64 {
        let mut seqs = HashMap::new();
        for (name, row) in rows {
            self.wake(&name, &row);
            seqs.insert(name, row.content.seq);
        }
        // Also of claims that came meanwhile: they were not granted in rows that were read before.
        for claim in self.awaited().values_mut() {
            if names.contains_key(&claim.name) {
                let seq = seqs.get(claim.name.as_str().as_bytes());
                claim.seq = Some(seq.copied().unwrap_or(0));
            }
        }
        seqs.values().sum()
    }

    fn wake(&self, name: &[u8], row: &Row) {
        let waiting: Vec<_> = {
            let awaited = self.awaited();
            let here = awaited
                .iter()
                .filter(|(_, awaited)| awaited.name.as_str().as_bytes() == name);
            here.map(|(id, awaited)| (*id, awaited.name.clone()))
                .collect()
        };
        for (request, name) in waiting {
            let Ok(state) = row.state(&name) else {
                continue;
            };
            match state.standing(request, row.moment()) {
                ClaimReply::Granted(grant) => {
                    self.client.highest.saw(grant.seq);
                    self.forget(request);
                    self.client.cache.keep_granted(&name, row.clone());
                    self.deliver(request, Wake::Granted(grant));
                }
                ClaimReply::Queued(_) => {}
                // The claim is gone, unless it never arrived: then it is on its way.
                ClaimReply::Busy(_) | ClaimReply::Gone(_) => {
                    let arrived = self.awaited().get(&request).map(|a| a.seq.is_some());
                    if arrived == Some(true) {
                        self.deliver(request, Wake::Hint);
                    }
                }
            }
        }
    }

    /// The wakes of a claim.
    pub(crate) fn register(&self, request: RequestId) -> Wakes {
        self.registry.register(request)
    }

    pub(crate) fn deliver(&self, request: RequestId, wake: Wake) {
        self.registry.deliver(request, wake);
    }

    /// This claim is about to be sent and may have to wait.
    pub(crate) fn expect(&self, claim: &Claim) {
        let awaited = Awaited {
            name: claim.name.clone(),
            seq: None,
        };
        self.awaited().entry(claim.request).or_insert(awaited);
    }

    /// This claim is in the queue, and `seq` is the last number that its name has granted.
    pub(crate) fn queued(self: &Arc<Self>, request: RequestId, seq: u64) {
        let known = match self.awaited().get_mut(&request) {
            Some(awaited) => {
                awaited.seq = awaited.seq.max(Some(seq));
                true
            }
            None => false,
        };
        if known {
            self.arrivals.send_modify(|count| *count += 1);
            self.start();
        }
    }

    /// This claim does not wait any more.
    pub(crate) fn forget(&self, request: RequestId) {
        self.awaited().remove(&request);
    }

    /// Whether this claim waits.
    pub(crate) fn awaits(&self, request: RequestId) -> bool {
        self.awaited().contains_key(&request)
    }

    /// Whether wakes are kept for a claim from the moment that it was queued: it was registered before,
    /// and the listener reads its row before it sleeps.
    pub(crate) fn keeps_wakes(&self) -> bool {
        !self.failing.load(Ordering::SeqCst)
    }

    /// Ends the listener and all streams.
    pub(crate) fn close(&self) {
        if self.runs.load(Ordering::SeqCst) {
            // A driver may end a connection only after its statement has ended.
            self.dialect().notify(&[self.client.id]);
        }
        self.registry.close();
        self.awaited().clear();
    }

    fn start(self: &Arc<Self>) {
        if self.closed.is_closed() || self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = keeper::spawn(self.clone().run()) {
            self.runs.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot listen for wakes: waiting by polling");
        }
    }

    async fn run(self: Arc<Self>) {
        let clock = Clock::boot();
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        loop {
            // Closing must not wait for the end of a wait at the server.
            let ended = tokio::select! {
                biased;
                () = self.closed.wait_closed() => Ok(()),
                ended = self.dialect().listen(&self) => ended,
            };
            if !self.failing.swap(ended.is_err(), Ordering::SeqCst) {
                backoff.reset();
            }
            match ended {
                Ok(()) => {
                    self.runs.store(false, Ordering::SeqCst);
                    // A claim may have arrived after the last look.
                    if self.is_empty() || self.closed.is_closed() {
                        return;
                    }
                    if self.runs.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
                Err(failure) => {
                    tracing::debug!(?failure, "cannot receive wakes; waiters poll meanwhile");
                    tokio::select! {
                        biased;
                        () = self.closed.wait_closed() => {}
                        () = backoff.wait(&clock) => {}
                    }
                }
            }
        }
    }
}
