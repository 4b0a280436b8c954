//! What a case works with.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::memory::Faults;
use clinch_core::store::{Admin, Capability, Claim, LockView, OpenContext};
use clinch_core::{Clinch, ClinchBuilder, Name, Result};

use super::subject::{Place, Subject};
use crate::holder::Holder;
use crate::stores::Faulty;
use crate::wait::{eventually, eventually_or};

/// One case's store, and the clients and processes that it starts there.
///
/// ```
/// use clinch_testkit::conformance::{Ctx, Outcome};
/// /// The body of a case; the suite gives it an empty place, and looks for leftovers afterwards.
/// async fn two_clients_exclude_each_other(ctx: &Ctx) -> Outcome {
///     let (a, b) = (ctx.client().await, ctx.client().await);
///     let guard = a.lock("a").lease(ctx.long()).acquire().await?;
///     assert!(b.lock("a").try_acquire().await?.is_none());
///     guard.release().await?;
///     Ok(())
/// }
/// ```
pub struct Ctx {
    subject: Arc<dyn Subject>,
    place: Box<dyn Place>,
    clients: Mutex<Vec<Client>>,
}

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ctx({})", self.place.url())
    }
}

/// An independent client, with faults of its own.
///
/// ```
/// use clinch_core::memory::{Fault, Op};
/// use clinch_testkit::conformance::{Ctx, Outcome};
/// async fn a_lost_reply_is_asked_for_again(ctx: &Ctx) -> Outcome {
///     let client = ctx.client().await;
///     client.faults.inject(Op::Claim, Fault::ReplyLost);
///     assert!(client.lock("a").acquire().await?.is_valid());
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    clinch: Clinch,
    context: OpenContext,
    /// What goes wrong with this client's requests.
    pub faults: Arc<Faults>,
    /// Requests so far, those that failed on the way too.
    pub attempts: Arc<AtomicU64>,
    faulty: Arc<Faulty>,
}

impl Deref for Client {
    type Target = Clinch;

    fn deref(&self) -> &Clinch {
        &self.clinch
    }
}

impl Client {
    /// Keeps the wakes for this client, or lets them pass.
    pub fn hold_wakes(&self, hold: bool) {
        self.faulty.hold_wakes(hold);
    }

    /// This client's store, to hold claims back.
    pub fn faulty(&self) -> &Faulty {
        &self.faulty
    }

    /// How many of this client's claims the store has answered.
    pub fn answers(&self) -> u64 {
        self.faulty.answers()
    }

    /// A claim of this client as the engine would send it, for cases below the engine.
    pub fn claim(&self, name: &str, lease: Duration) -> Claim {
        Claim::new(&self.context.identity, Name::new(name).unwrap(), lease)
    }
}

impl Ctx {
    pub(super) async fn new(subject: Arc<dyn Subject>) -> Result<Self> {
        let place = subject.place().await?;
        Ok(Self {
            subject,
            place,
            clients: Mutex::default(),
        })
    }

    /// A new client.
    pub async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    /// A new client with settings of its own.
    pub async fn client_with(&self, set: impl FnOnce(ClinchBuilder) -> ClinchBuilder) -> Client {
        let context = Clinch::context(&self.place.namespace()).unwrap();
        let store = self.subject.open(&self.place.url(), context.clone()).await;
        let store = store.expect("the store opens");
        let faulty = Arc::new(Faulty::new(store, context.clock.clone()));
        let client = Client {
            faults: faulty.faults().clone(),
            attempts: faulty.attempts().clone(),
            clinch: set(Clinch::builder(faulty.clone(), context.clone())).build(),
            faulty,
            context,
        };
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// The bare store, for a client that the case puts together itself.
    pub async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        self.subject.open(&self.place.url(), context).await
    }

    /// A process with a client of its own. Where processes cannot share locks, it has its own.
    pub async fn holder(&self) -> Holder {
        let (url, namespace) = (self.place.url(), self.place.namespace());
        Holder::spawn(&self.subject.name(), &url, &namespace).await
    }

    /// The place, to restart it or to lose its data.
    pub fn place(&self) -> &dyn Place {
        &*self.place
    }

    /// A lease that is meant to run out.
    pub fn lease(&self) -> Duration {
        self.subject.lease()
    }

    /// A lease that does not run out within a case: what becomes free became so in another way.
    pub fn long(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Whether the store has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.subject.info().capabilities.has(capability)
    }

    /// Whether processes share the store's locks.
    pub fn has_processes(&self) -> bool {
        self.subject.alone().is_none()
    }

    /// Everything that somebody holds or waits for. Where the store cannot list, what has become of
    /// the names that this case's clients have asked for.
    pub async fn scan(&self, by: &Client) -> Vec<LockView> {
        if self.has(Capability::List) {
            return by.store().list("").await.expect("the store lists");
        }
        let names: BTreeSet<Name> = self.faulty().iter().flat_map(|f| f.names()).collect();
        let mut views = Vec::new();
        for name in names {
            let view = by.store().inspect(&name).await.expect("the store answers");
            views.extend(view);
        }
        views
    }

    /// How many hold and wait for a name. Where the store keeps no queue, the waiters are those of
    /// this case's clients in this process.
    pub async fn parties(&self, by: &Client, name: &Name) -> (usize, usize) {
        let view = by.store().inspect(name).await.expect("the store answers");
        let (holders, queue) = view.map_or((0, 0), |v| (v.holders.len(), v.waiters.len()));
        match self.has(Capability::Queue) {
            true => (holders, queue),
            false => (holders, self.faulty().iter().map(|f| f.waiting(name)).sum()),
        }
    }

    /// Asserts that a lock has one holder, with this number where the store's tokens say so.
    pub fn expect_holder(&self, view: &LockView, seq: u64) {
        assert_eq!(view.holders.len(), 1, "{view:?}");
        let token = view.holders[0].token.map(|token| token.seq());
        let expected = self.has(Capability::Tokens).then_some(seq);
        assert!(token == expected || token == Some(seq), "{view:?}");
    }

    /// Asserts that a token is greater than the one before it; numbers that are no tokens need only
    /// differ.
    pub fn expect_newer<T: Ord + std::fmt::Debug>(&self, new: T, old: T) {
        match self.has(Capability::Tokens) {
            true => assert!(new > old, "{new:?} after {old:?}"),
            false => assert_ne!(new, old),
        }
    }

    fn faulty(&self) -> Vec<Arc<Faulty>> {
        let clients = self.clients.lock().unwrap();
        clients.iter().map(|client| client.faulty.clone()).collect()
    }

    /// Waits until so many claims hold and wait for a name.
    pub async fn until(&self, by: &Client, name: &str, holders: usize, waiters: usize) {
        let name = Name::new(name).unwrap();
        let what = format!("{holders} holders and {waiters} waiters of {name:?}");
        eventually(&what, async || {
            self.parties(by, &name).await == (holders, waiters)
        })
        .await;
    }

    /// Stops a process, but not in the middle of a step at the store: where processes share a file, that would
    /// stop everybody.
    pub async fn stop(&self, process: &Holder, by: &Client) {
        loop {
            process.stop().await;
            let probe = by.lock("probe").lease(self.long()).try_acquire().await;
            if let Ok(Some(guard)) = probe {
                guard.release().await.expect("nobody is in the way");
                return;
            }
            process.cont();
        }
    }

    /// Heals and closes every client, as if the process had ended well.
    pub async fn close_all(&self) {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap());
        for client in clients {
            client.faults.clear();
            client.hold_wakes(false);
            client.close().await.expect("a client closes");
        }
    }

    /// Waits until nothing is held or waited for, and nothing else is left at the engine.
    pub(super) async fn expect_empty(&self) {
        for client in self.clients.lock().unwrap().iter() {
            client.faults.clear();
        }
        let auditor = self.client().await;
        let mut left = String::new();
        let gone = eventually_or(async || {
            let mut views = self.scan(&auditor).await;
            // A lock-delay is meant to outlive its holder.
            views.retain(|view| !view.holders.is_empty() || !view.waiters.is_empty());
            left = format!("{views:?}");
            views.is_empty()
        });
        assert!(gone.await, "left behind: {left}");
        self.close_all().await;
        drop(auditor);
        let mut left = Vec::new();
        let gone = eventually_or(async || {
            left = self.place.leftovers().await.expect("the engine is scanned");
            left.is_empty()
        });
        assert!(gone.await, "left at the engine: {left:?}");
    }
}
