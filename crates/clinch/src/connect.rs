//! From a URL to a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Clinch, Clock, Error, HandOver, Result, StoreUrl, redact};

/// Connects to a store with default options. The [crate's page](crate#stores) lists the URLs.
///
/// ```
/// # clinch::blocking::block_on(async {
/// let clinch = clinch::connect("memory:").await?;
/// assert_eq!(clinch.info().scheme, "memory");
/// let error = clinch::connect("mysqlite:").await.unwrap_err();
/// assert!(error.to_string().contains("this build has memory:"));
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Clinch> {
    Connect::new(url).open().await
}

/// Connects with options.
///
/// ```
/// # clinch::blocking::block_on(async {
/// use std::time::Duration;
/// let clinch = clinch::Connect::new("memory:")
///     .namespace("billing")
///     .patience(Duration::from_secs(3))
///     .open()
///     .await?;
/// assert!(clinch.lock("invoices").acquire().await?.is_valid());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Connect {
    url: String,
    namespace: String,
    patience: Option<Duration>,
    hand_over: HandOver,
    clock: Clock,
}

impl Connect {
    /// Options for the store with this URL.
    pub fn new(url: impl AsRef<str>) -> Self {
        Self {
            url: url.as_ref().to_owned(),
            namespace: "clinch".to_owned(),
            patience: None,
            hand_over: HandOver::default(),
            clock: Clock::boot(),
        }
    }

    /// Options for the embedded store in the user's default file.
    pub fn default_store() -> Self {
        Self::new("sqlite:")
    }

    /// The prefix that separates applications in one store; `clinch` by default.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::Connect;
    /// let billing = Connect::new("memory:shared").namespace("billing").open().await?;
    /// let shop = Connect::new("memory:shared").namespace("shop").open().await?;
    /// let guard = billing.lock("orders/42").acquire().await?;
    /// assert!(shop.lock("orders/42").try_acquire().await?.is_some()); // another lock
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_owned();
        self
    }

    /// How long claims are retried while the store cannot be reached; 10 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// How holds pass between tasks of this process.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::{Connect, HandOver};
    /// let clinch = Connect::new("memory:").hand_over(HandOver::OFF).open().await?;
    /// let lock = clinch.lock("a");
    /// let first = lock.acquire().await?;
    /// let (second, _) = tokio::join!(lock.acquire(), first.release());
    /// assert_eq!(second?.token().local(), 0); // granted by the store
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn hand_over(mut self, hand_over: HandOver) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// The clock that deadlines are read from, for tests; the boot clock by default. The embedded store
    /// needs the default: all processes of a machine must share one clock.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::{Clock, Connect};
    /// let slow = Connect::new("memory:").clock(Clock::drifting(-5_000)).open().await?;
    /// assert!(slow.lock("a").acquire().await?.is_valid());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connects.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::{Connect, ErrorKind};
    /// let error = Connect::new("memory:?bussy=1s").open().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Invalid); // a misspelt parameter is never ignored
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn open(self) -> Result<Clinch> {
        self.open_with(|store| store).await
    }

    /// Connects, for synchronous code.
    ///
    /// ```
    /// let clinch = clinch::Connect::new("memory:").namespace("billing").open_blocking()?;
    /// let guard = clinch.lock("invoices").acquire()?;
    /// # Ok::<_, clinch::Error>(())
    /// ```
    pub fn open_blocking(self) -> Result<clinch_core::blocking::Clinch> {
        clinch_core::blocking::block_on(self.open()).map(Into::into)
    }

    /// Connects with a layer between the engine and the store: to record, to count, to disturb.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::Connect;
    /// let mut seen = None;
    /// let clinch = Connect::new("memory:").open_with(|store| {
    ///     seen = Some(store.clone()); // or wrap it
    ///     store
    /// }).await?;
    /// let guard = clinch.lock("a").acquire().await?;
    /// assert_eq!(seen.unwrap().list("").await?.len(), 1);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
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

/// A URL may contain a password.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("url", &redact(&self.url))
            .field("namespace", &self.namespace)
            .field("patience", &self.patience)
            .field("hand_over", &self.hand_over)
            .field("clock", &self.clock)
            .finish()
    }
}

/// The stores of this build.
///
/// ```
/// assert!(clinch::stores().iter().any(|store| store.scheme == "memory"));
/// ```
pub fn stores() -> Vec<StoreInfo> {
    [
        vec![MemoryStore::describe()],
        #[cfg(feature = "sqlite")]
        vec![clinch_sqlite::SqliteStore::describe()],
        #[cfg(feature = "mysql")]
        clinch_mysql::stores(),
        #[cfg(feature = "redis")]
        clinch_redis::stores(),
        #[cfg(feature = "etcd")]
        clinch_etcd::stores(),
        #[cfg(feature = "zookeeper")]
        clinch_zookeeper::stores(),
    ]
    .concat()
}

/// The feature that adds the store of a scheme.
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
        "mysql" | "mariadb" => Box::pin(clinch_mysql::open(url, context)).await,
        #[cfg(feature = "redis")]
        scheme if scheme == "rediss" || scheme.split('+').next() == Some("redis") => {
            Box::pin(clinch_redis::open(url, context)).await
        }
        #[cfg(feature = "etcd")]
        "etcd" => Box::pin(clinch_etcd::open(url, context)).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(clinch_sqlite::SqliteStore::open(url, context)?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Box::pin(clinch_zookeeper::open(url, context)).await,
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
