//! Any store, with the faults of the reference store.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use clinch_core::memory::{Fault, Faults, Op};
use clinch_core::store::{
    Admin, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Hold, LockView, ReleaseReply,
    RenewReply, Renewal, Store, StoreInfo, Suspicions, Wake, Wakes,
};
use clinch_core::{Clock, Effect, Error, ErrorKind, Name, RequestId, Result, keeper};
use tokio::sync::watch;

/// Makes the requests of one client fail on purpose, above any store.
///
/// A lost reply, an error before the effect, a hang, a delay and a cut-off client are then the same
/// code for every store. A client that is cut off loses the replies that are on their way. Unlike in the memory store, [`Faults::drop_wakes`] loses the wakes that
/// *this* client would get; a client that is cut off gets none either.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, Clock, memory::{Fault, Op}};
/// use clinch_testkit::stores::Faulty;
/// let (context, inner) = (Clinch::context("app")?, Clinch::memory().store().clone());
/// let store = std::sync::Arc::new(Faulty::new(inner, Clock::boot()));
/// let clinch = Clinch::builder(store.clone(), context).build();
/// store.faults().inject(Op::Claim, Fault::ReplyLost);
/// assert!(clinch.lock("a").acquire().await?.is_valid()); // asked again
/// assert!(store.attempts().load(std::sync::atomic::Ordering::Relaxed) > 1);
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Admin>,
    faults: Arc<Faults>,
    clock: Clock,
    attempts: Arc<AtomicU64>,
    seen: Arc<Mutex<Seen>>,
    /// Whether wakes are held back.
    holds_wakes: watch::Sender<bool>,
    /// Claims that the store has answered.
    answers: AtomicU64,
    held_back: Mutex<HeldBack>,
    withdrawn: AtomicU64,
    panics: AtomicBool,
}

/// Claims that are under way for longer than anybody waits for them.
#[derive(Debug, Default)]
struct HeldBack {
    /// How many of the next claims are held back.
    next: usize,
    claims: Vec<Claim>,
}

/// What the store was asked for.
#[derive(Debug, Default)]
struct Seen {
    names: BTreeSet<Name>,
    /// Claims that have not ended, and whether the store has acknowledged them as waiting.
    open: HashMap<RequestId, (Name, bool)>,
}

impl Faulty {
    /// A store that behaves until it is told otherwise through [`faults`](Self::faults).
    pub fn new(inner: Arc<dyn Admin>, clock: Clock) -> Self {
        Self {
            inner,
            faults: Arc::default(),
            clock,
            attempts: Arc::default(),
            seen: Arc::default(),
            holds_wakes: watch::Sender::default(),
            answers: AtomicU64::default(),
            held_back: Mutex::default(),
            withdrawn: AtomicU64::new(0),
            panics: AtomicBool::new(false),
        }
    }

    /// Holds back the next claims, as a network does that delivers a request long after its sender has
    /// given it up: they are not answered, and reach the store with
    /// [`deliver_held_back`](Self::deliver_held_back).
    pub fn hold_back_claims(&self, count: usize) {
        self.held_back.lock().unwrap().next = count;
    }

    /// Lets the claims that were held back reach the store, in order; what it says to each.
    pub async fn deliver_held_back(&self) -> Result<Vec<ClaimReply>> {
        let claims = std::mem::take(&mut self.held_back.lock().unwrap().claims);
        let mut replies = Vec::new();
        for claim in claims {
            replies.push(self.inner.claim(&claim).await?);
        }
        Ok(replies)
    }

    /// Makes the next claim that is sent on the keeper panic: a fault in the code of a store.
    pub fn panic_on_the_keeper(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// How many withdrawals the store has acknowledged.
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn.load(Ordering::Relaxed)
    }

    fn is_held_back(&self, claim: &Claim) -> bool {
        let mut held_back = self.held_back.lock().unwrap();
        let held = held_back.next > 0;
        if held {
            held_back.next -= 1;
            held_back.claims.push(claim.clone());
        }
        held
    }

    /// Keeps the wakes that this client would get, or lets them and those that were kept pass. They
    /// are kept while the client is cut off, too.
    pub fn hold_wakes(&self, hold: bool) {
        self.holds_wakes.send_replace(hold);
    }

    /// How many claims the store has answered.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// The names that were claimed.
    pub fn names(&self) -> Vec<Name> {
        self.seen.lock().unwrap().names.iter().cloned().collect()
    }

    /// How many claims of this client wait for a name, by the store's answers to them.
    pub fn waiting(&self, name: &Name) -> usize {
        let seen = self.seen.lock().unwrap();
        let waits = |(of, waits): &&(Name, bool)| of == name && *waits;
        seen.open.values().filter(waits).count()
    }

    async fn claim_inside(&self, claim: &Claim) -> Result<ClaimReply> {
        {
            let mut seen = self.seen.lock().unwrap();
            seen.names.insert(claim.name.clone());
            let unsure = (claim.name.clone(), false);
            seen.open.entry(claim.request).or_insert(unsure);
        }
        let reply = self.inner.claim(claim).await?;
        self.answers.fetch_add(1, Ordering::SeqCst);
        let mut seen = self.seen.lock().unwrap();
        match reply {
            // A grant may have been pushed meanwhile: then it is not open any more.
            ClaimReply::Queued(_) => {
                if let Some((_, waits)) = seen.open.get_mut(&claim.request) {
                    *waits = true;
                }
            }
            _ => drop(seen.open.remove(&claim.request)),
        }
        drop(seen);
        Ok(reply)
    }

    async fn withdraw_inside(&self, claim: &Claim) -> Result<()> {
        self.inner.withdraw(claim).await?;
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
        self.seen.lock().unwrap().open.remove(&claim.request);
        Ok(())
    }

    /// What goes wrong.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Requests so far, those that failed before they reached the store too.
    pub fn attempts(&self) -> &Arc<AtomicU64> {
        &self.attempts
    }

    async fn step<T>(&self, op: Op, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let scheme = self.inner.info().scheme;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let fault = self.faults.take(op);
        if let Some(fault) = fault {
            let before = fault.before(&self.clock).await;
            before.map_err(|e| e.with_store(scheme))?;
        }
        let reply = request.await;
        // A client that was cut off meanwhile hears nothing of what it had asked before.
        let fault = match self.faults.is_cut() {
            true => Some(Fault::ReplyLost),
            false => fault,
        };
        if let Some(fault) = fault {
            let after = fault.after(&self.clock).await;
            after.map_err(|e| e.with_store(scheme))?;
        }
        reply
    }
}

#[async_trait]
impl Store for Faulty {
    fn info(&self) -> &StoreInfo {
        self.inner.info()
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        if std::thread::current().name() == Some("clinch-keeper")
            && self.panics.swap(false, Ordering::Relaxed)
        {
            panic!("on purpose");
        }
        if self.is_held_back(claim) {
            let error = Error::new(ErrorKind::Unreachable, "the claim is held back");
            return Err(error.with_effect(Effect::Possible));
        }
        self.step(Op::Claim, self.claim_inside(claim)).await
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        let mut from = self.inner.wakes(claim);
        let (to, wakes) = Wakes::channel();
        let (faults, seen, request) = (self.faults.clone(), self.seen.clone(), claim.request);
        let mut held = self.holds_wakes.subscribe();
        let forward = async move {
            loop {
                tokio::select! {
                    wake = from.next() => match wake {
                        Some(_) if !*held.borrow() && (faults.drops_wakes() || faults.is_cut()) => {}
                        Some(wake) => {
                            tokio::select! {
                                _ = held.wait_for(|held| !held) => {}
                                () = to.closed() => return,
                            }
                            if matches!(wake, Wake::Granted(_)) {
                                seen.lock().unwrap().open.remove(&request);
                            }
                            to.send(wake);
                        }
                        None => return,
                    },
                    () = to.closed() => return,
                }
            }
        };
        keeper::spawn(forward).expect("the keeper runs");
        wakes
    }

    fn suspicions(&self) -> Suspicions {
        self.inner.suspicions()
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let fails = |renewal: &Renewal| self.faults.fails_renewal_of(renewal.hold.name.as_str());
        let sent: Vec<Renewal> = renewals.iter().filter(|r| !fails(r)).cloned().collect();
        if sent.len() == renewals.len() {
            return self.step(Op::Renew, self.inner.renew(renewals)).await;
        }
        // A batch that is empty still is a request.
        let mut replies = self
            .step(Op::Renew, self.inner.renew(&sent))
            .await?
            .into_iter();
        let reply = |renewal: &Renewal| match fails(renewal) {
            true => RenewReply::Unknown,
            false => replies.next().unwrap_or(RenewReply::Unknown),
        };
        Ok(renewals.iter().map(reply).collect())
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.step(Op::Release, self.inner.release(hold)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.step(Op::Withdraw, self.withdraw_inside(claim)).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.step(Op::Read, self.inner.check(name, seq)).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[async_trait]
impl Admin for Faulty {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.step(Op::Read, self.inner.list(prefix)).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.step(Op::Read, self.inner.inspect(name)).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.step(Op::Read, self.inner.events(prefix)).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.step(Op::Evict, self.inner.evict(name, seq)).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.step(Op::Read, self.inner.doctor()).await
    }
}
