//! Clients of a store for its own tests: the bare store, and the whole client above it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> clinch_core::Result<()> {
//! use clinch_testkit::clients::{Client, LONG, Memory, hold};
//! let client = Client::<Memory>::open("memory:shop").await?;
//! let claim = client.mutex("orders/42", LONG);
//! let grant = client.granted(&claim).await;
//! client.queued(&client.mutex("orders/42", LONG)).await;
//! assert!(client.store.release(&hold(&claim, &grant)).await?.was_held());
//! # Ok(()) }
//! ```

mod claims;

pub use claims::{hold, mutex, number, pass, renewal};

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{Admin, Claim, ClaimReply, Grant, OpenContext};
use clinch_core::{Clinch, ClinchBuilder, Error, HandOver, Identity, Name, Result, StoreUrl};

use crate::servers::{Etcd, MariaDb, Redis, ZooKeeper};
use crate::wait::eventually;

/// A lease that no test outlives: what becomes free with it became so because somebody acted.
///
/// ```
/// use clinch_testkit::{clients::LONG, wait::PATIENCE};
/// assert!(LONG > PATIENCE);
/// ```
pub const LONG: Duration = Duration::from_secs(60);

/// How the stores of a crate are opened.
///
/// ```
/// use clinch_core::{Result, StoreUrl, memory::MemoryStore, store::{Admin, OpenContext}};
/// use clinch_testkit::clients::{Client, Opens};
/// use std::sync::Arc;
/// struct Mine;
/// impl Opens for Mine {
///     async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
///         Ok(Arc::new(MemoryStore::open(url, context)?))
///     }
/// }
/// type MyClient = Client<Mine>;
/// # clinch_core::blocking::block_on(MyClient::open("memory:")).unwrap();
/// ```
pub trait Opens {
    /// Opens the store at a URL.
    fn open(
        url: &StoreUrl,
        context: OpenContext,
    ) -> impl Future<Output = Result<Arc<dyn Admin>>> + Send;
}

/// The memory store, as the model for how to write [`Opens`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> clinch_core::Result<()> {
/// use clinch_testkit::clients::{Client, LONG, Memory};
/// let one = Client::<Memory>::open("memory:kitchen").await?;
/// let two = Client::<Memory>::open("memory:kitchen").await?;
/// one.granted(&one.mutex("a", LONG)).await;
/// two.queued(&two.mutex("a", LONG)).await; // the same URL, the same locks
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Memory;

impl Opens for Memory {
    async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
        Ok(Arc::new(MemoryStore::open(url, context)?))
    }
}

/// What has a URL: a server, or the URL itself.
///
/// ```
/// use clinch_testkit::clients::Located;
/// assert_eq!("redis://127.0.0.1".location(), "redis://127.0.0.1");
/// ```
pub trait Located {
    /// The URL for clients.
    fn location(&self) -> String;
}

impl Located for str {
    fn location(&self) -> String {
        self.to_owned()
    }
}

impl Located for String {
    fn location(&self) -> String {
        self.clone()
    }
}

macro_rules! located {
    ($($server:ty),*) => {$(
        impl Located for $server {
            fn location(&self) -> String {
                self.url()
            }
        }
    )*};
}

located!(Redis, MariaDb, Etcd, ZooKeeper);

/// A store with the identity that uses it, without the engine above: nothing is repeated here.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> clinch_core::Result<()> {
/// use clinch_testkit::clients::{Client, LONG, Memory};
/// let client = Client::<Memory>::at("memory:").await;
/// let shared = client.permit("pool", 2, LONG);
/// client.granted(&shared).await;
/// assert_eq!(client.holders("pool").await, 1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client<O> {
    /// The store.
    pub store: Arc<dyn Admin>,
    /// Who uses it.
    pub identity: Arc<Identity>,
    opened_by: PhantomData<fn() -> O>,
}

impl<O: Opens> Client<O> {
    /// A client of the store at a URL.
    pub async fn open(url: &str) -> Result<Self> {
        let context = Clinch::context("clinch")?;
        let identity = context.identity.clone();
        let store = O::open(&url.parse()?, context).await?;
        Ok(Self {
            store,
            identity,
            opened_by: PhantomData,
        })
    }

    /// A client of a server that must be there.
    pub async fn at(server: &(impl Located + ?Sized)) -> Self {
        Self::open(&server.location()).await.unwrap()
    }

    /// Why this URL is refused, as one line.
    pub async fn refusal(url: &str) -> Error {
        match Self::open(url).await {
            Ok(_) => panic!("it was accepted"),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains('\n'), "{text}");
                assert!(error.store().is_some(), "no store in {text}");
                error
            }
        }
    }

    /// A whole client, without hand-over inside the process: every hold goes back to the store.
    pub async fn whole(url: &str) -> Result<Clinch> {
        Ok(Self::whole_in(url, "clinch").await?.build())
    }

    /// The same in a namespace of its own, to be set up further.
    pub async fn whole_in(url: &str, namespace: &str) -> Result<ClinchBuilder> {
        let context = Clinch::context(namespace)?;
        let store = O::open(&url.parse()?, context.clone()).await?;
        Ok(Clinch::builder(store, context).hand_over(HandOver::OFF))
    }

    /// A new claim of a mutex.
    pub fn mutex(&self, name: &str, lease: Duration) -> Claim {
        mutex(&self.identity, name, lease)
    }

    /// A new claim of one unit among so many.
    pub fn permit(&self, name: &str, limit: u32, lease: Duration) -> Claim {
        Claim {
            limit,
            ..self.mutex(name, lease)
        }
    }

    /// Claims what must be granted at once.
    pub async fn granted(&self, claim: &Claim) -> Grant {
        match self.store.claim(claim).await.unwrap() {
            ClaimReply::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Claims what must be waited for.
    pub async fn queued(&self, claim: &Claim) {
        let reply = self.store.claim(claim).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    }

    /// Takes a lock and gives it back, so that what a store sets up for a name and a lease is there.
    ///
    /// Twice: after the first time something may still be under way in the background.
    pub async fn warm_up(&self, name: &str, lease: Duration) {
        for _ in 0..2 {
            let claim = self.mutex(name, lease);
            let grant = self.granted(&claim).await;
            self.store.release(&hold(&claim, &grant)).await.unwrap();
        }
    }

    /// The holders that the store knows of.
    pub async fn holders(&self, name: &str) -> usize {
        self.line(name).await.0
    }

    /// Waits until so many hold and wait.
    pub async fn until(&self, name: &str, holders: usize, waiters: usize) {
        eventually("the line", async || {
            self.line(name).await == (holders, waiters)
        })
        .await;
    }

    /// Waits until nobody holds, waits or is delayed.
    pub async fn all_free(&self) {
        eventually("everything is free", async || {
            self.store.list("").await.unwrap().is_empty()
        })
        .await;
    }

    async fn line(&self, name: &str) -> (usize, usize) {
        let view = self.store.inspect(&Name::new(name).unwrap()).await.unwrap();
        view.map_or((0, 0), |view| (view.holders.len(), view.waiters.len()))
    }
}
