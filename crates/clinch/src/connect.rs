//! From a URL to a client.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Clinch, Clock, Error, HandOver, Result, StoreUrl};

/// Connects to a store with everything at its default.
///
/// | URL | feature of this crate | store |
/// |---|---|---|
/// | `sqlite:`, `sqlite:PATH` | `sqlite` | embedded: several processes on one machine, no server |
/// | `redis://HOST:PORT`, `rediss://…` | `redis`, `redis-tls` | one Redis |
/// | `redis+sentinel://S1,S2,S3/MASTER` | `redis` | a master with replicas, followed through failovers |
/// | `redis+cluster://H1,H2,H3` | `redis` | a cluster |
/// | `redis+quorum://H1,…,H5` | `redis` | independent servers, of which a majority must agree |
/// | `mysql://USER:PASSWORD@HOST:PORT/DATABASE` | `mysql`, `mysql-tls` | MySQL 8 and MariaDB |
/// | `etcd://H1,H2,H3` | `etcd`, `etcd-tls` | etcd |
/// | `zookeeper://H1,H2,H3/PATH` | `zookeeper`, `zookeeper-sasl`, `zookeeper-tls` | ZooKeeper |
/// | `memory:`, `memory:NAME` | always there | inside this process, for tests |
///
/// ```
/// # async fn demo() -> clinch::Result<()> {
/// let clinch = clinch::connect("memory:").await?;
/// assert_eq!(clinch.info().scheme, "memory");
/// let error = clinch::connect("mysqlite:").await.unwrap_err();
/// assert!(error.to_string().contains("this build has memory:"));
/// # Ok(()) }
/// # clinch::blocking::block_on(demo()).unwrap();
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Clinch> {
    Connect::new(url).open().await
}

/// Connects with options.
///
/// ```
/// # async fn demo() -> clinch::Result<()> {
/// use std::time::Duration;
/// let clinch = clinch::Connect::new("memory:")
///     .namespace("billing")
///     .patience(Duration::from_secs(3))
///     .open()
///     .await?;
/// assert!(clinch.lock("invoices").acquire().await?.is_valid());
/// # Ok(()) }
/// # clinch::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Connect {
    url: String,
    namespace: String,
    patience: Option<Duration>,
    hand_over: HandOver,
    clock: Clock,
}

impl Connect {
    /// A connection to the store with this URL.
    pub fn new(url: impl AsRef<str>) -> Self {
        Self {
            url: url.as_ref().to_owned(),
            namespace: "clinch".to_owned(),
            patience: None,
            hand_over: HandOver::default(),
            clock: Clock::boot(),
        }
    }

    /// A connection to the embedded store in the user's own file.
    pub fn default_store() -> Self {
        Self::new("sqlite:")
    }

    /// The prefix that separates applications in one store (`clinch` unless said).
    ///
    /// ```
    /// # async fn demo() -> clinch::Result<()> {
    /// use clinch::Connect;
    /// let billing = Connect::new("memory:shared").namespace("billing").open().await?;
    /// let shop = Connect::new("memory:shared").namespace("shop").open().await?;
    /// let guard = billing.lock("orders/42").acquire().await?;
    /// assert!(shop.lock("orders/42").try_acquire().await?.is_some()); // another lock
    /// # Ok(()) }
    /// # clinch::blocking::block_on(demo()).unwrap();
    /// ```
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_owned();
        self
    }

    /// For how long claims go on while the store cannot be reached (10 s unless said).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// How holds pass between tasks of this process.
    ///
    /// ```
    /// # async fn demo() -> clinch::Result<()> {
    /// use clinch::{Connect, HandOver};
    /// let clinch = Connect::new("memory:").hand_over(HandOver::OFF).open().await?;
    /// let lock = clinch.lock("a");
    /// let first = lock.acquire().await?;
    /// let (second, _) = tokio::join!(lock.acquire(), first.release());
    /// assert_eq!(second?.token().local(), 0); // by way of the store
    /// # Ok(()) }
    /// # clinch::blocking::block_on(demo()).unwrap();
    /// ```
    #[must_use]
    pub fn hand_over(mut self, hand_over: HandOver) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// The clock that deadlines are read from, for tests: the boot clock unless said. The embedded store
    /// needs that one, which all processes of a machine share.
    ///
    /// ```
    /// # async fn demo() -> clinch::Result<()> {
    /// use clinch::{Clock, Connect};
    /// let slow = Connect::new("memory:").clock(Clock::drifting(-5_000)).open().await?;
    /// assert!(slow.lock("a").acquire().await?.is_valid());
    /// # Ok(()) }
    /// # clinch::blocking::block_on(demo()).unwrap();
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connects.
    ///
    /// ```
    /// # async fn demo() -> clinch::Result<()> {
    /// use clinch::{Connect, ErrorKind};
    /// let error = Connect::new("memory:?bussy=1s").open().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Invalid); // a misspelt parameter is never ignored
    /// # Ok(()) }
    /// # clinch::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn open(self) -> Result<Clinch> {
        self.open_with(|store| store).await
    }

    /// Connects with a layer between the engine and the store: to record, to count, to disturb.
    ///
    /// ```
    /// # async fn demo() -> clinch::Result<()> {
    /// use clinch::Connect;
    /// let mut seen = None;
    /// let clinch = Connect::new("memory:").open_with(|store| {
    ///     seen = Some(store.clone()); // or wrap it
    ///     store
    /// }).await?;
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert_eq!(seen.unwrap().list("").await?.len(), 1);
    /// # Ok(()) }
    /// # clinch::blocking::block_on(demo()).unwrap();
    /// ```
    pub async fn open_with(
        self,
        layer: impl FnOnce(Arc<dyn Admin>) -> Arc<dyn Admin>,
    ) -> Result<Clinch> {
        let url: StoreUrl = self.url.parse()?;
        let mut context = Clinch::context(&self.namespace)?;
        context.clock = self.clock;
        let store = layer(open(&url, context.clone()).await?);
        let mut builder = Clinch::builder(store, context)
            .hand_over(self.hand_over)
            .peers(stores());
        if let Some(patience) = self.patience {
            builder = builder.patience(patience);
        }
        Ok(builder.build())
    }
}

/// Every store that this build has.
///
/// ```
/// assert!(clinch::stores().iter().any(|store| store.scheme == "memory"));
/// ```
pub fn stores() -> Vec<StoreInfo> {
    let mut stores = vec![MemoryStore::describe()];
    #[cfg(feature = "sqlite")]
    stores.push(clinch_sqlite::SqliteStore::describe());
    #[cfg(feature = "mysql")]
    stores.extend(clinch_mysql::stores());
    #[cfg(feature = "redis")]
    stores.extend(clinch_redis::stores());
    #[cfg(feature = "etcd")]
    stores.extend(clinch_etcd::stores());
    #[cfg(feature = "zookeeper")]
    stores.extend(clinch_zookeeper::stores());
    stores
}

/// The feature that adds the store of a scheme, where it is not in this build.
fn feature_of(scheme: &str) -> Option<&'static str> {
    match scheme {
        "sqlite" => Some("sqlite"),
        "mysql" | "mariadb" => Some("mysql"),
        "etcd" => Some("etcd"),
        "zookeeper" => Some("zookeeper"),
        "rediss" => Some("redis-tls"),
        scheme if scheme.split('+').next() == Some("redis") => Some("redis"),
        _ => None,
    }
}

async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
    match url.scheme() {
        "memory" => Ok(Arc::new(MemoryStore::open(url, context)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => clinch_mysql::open(url, context).await,
        #[cfg(feature = "redis")]
        scheme if scheme == "rediss" || scheme.split('+').next() == Some("redis") => {
            clinch_redis::open(url, context).await
        }
        #[cfg(feature = "etcd")]
        "etcd" => clinch_etcd::open(url, context).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(clinch_sqlite::SqliteStore::open(url, context)?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => clinch_zookeeper::open(url, context).await,
        scheme => {
            let known: Vec<String> = stores()
                .iter()
                .map(|store| format!("{}:", store.scheme))
                .collect();
            let advice = match feature_of(scheme) {
                Some(feature) => format!(
                    "turn on the feature `{feature}` of the crate `clinch`; this build has {}",
                    known.join(", ")
                ),
                None => format!("this build has {}", known.join(", ")),
            };
            Err(Error::invalid(format!("no store has the scheme {scheme:?}")).with_advice(advice))
        }
    }
}
