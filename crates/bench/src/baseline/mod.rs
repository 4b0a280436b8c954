//! What the lock is compared with: the same engine without clinch, on driver connections of its own.
//!
//! An [`Engine`] opens, on connections that live on the caller's runtime:
//!
//! - the *floor*: the fewest raw operations that an acquire-and-release pair needs;
//! - the *naive lock*, where there is one: the lock that applications commonly write themselves;
//! - *token passing*: a bare token, without lease, owner or safety.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_wire;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use async_trait::async_trait;
use clinch::{Error, ErrorKind, Result, StoreUrl};

/// Raw operations that make up one acquire-and-release pair.
///
/// ```
/// # async fn demo() -> clinch::Result<()> {
/// use clinch_bench::baseline::Baseline;
/// struct Map(std::collections::HashSet<u64>);
///
/// #[async_trait::async_trait]
/// impl Baseline for Map {
///     async fn pair(&mut self, key: u64) -> clinch::Result<()> {
///         assert!(self.0.insert(key) && self.0.remove(&key));
///         Ok(())
///     }
/// }
/// Map(Default::default()).pair(7).await?;
/// # Ok(()) }
/// # clinch::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait Baseline: Send {
    /// Acquires and releases the key with this number.
    async fn pair(&mut self, key: u64) -> Result<()>;
}

/// A bare token that processes pass on: no lease, no owner, no safety.
///
/// ```
/// # async fn demo() -> clinch::Result<()> {
/// use clinch_bench::baseline::TokenPassing;
/// use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
/// struct Channel(UnboundedSender<()>, UnboundedReceiver<()>);
///
/// #[async_trait::async_trait]
/// impl TokenPassing for Channel {
///     async fn take(&mut self) -> clinch::Result<()> {
///         self.1.recv().await;
///         Ok(())
///     }
///     async fn pass(&mut self) -> clinch::Result<()> {
///         self.0.send(()).ok();
///         Ok(())
///     }
///     async fn remove(&mut self) -> clinch::Result<()> {
///         Ok(())
///     }
/// }
/// let (to, from) = unbounded_channel();
/// let mut token = Channel(to, from);
/// token.pass().await?; // puts it there
/// token.take().await?;
/// token.remove().await?;
/// # Ok(()) }
/// # clinch::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait TokenPassing: Send {
    /// Waits for the token and takes it.
    async fn take(&mut self) -> Result<()>;

    /// Passes it to the client that waits longest. The first call of a run makes the token available.
    async fn pass(&mut self) -> Result<()>;

    /// Removes the token from the engine.
    async fn remove(&mut self) -> Result<()>;
}

/// One engine; see the [module](self). Its futures need a tokio runtime with I/O and time.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The floor, for one more worker.
    async fn floor(&self) -> Result<Box<dyn Baseline>>;

    /// The naive lock, for one more worker.
    async fn naive_lock(&self) -> Result<Option<Box<dyn Baseline>>> {
        Ok(None)
    }

    /// The token with this name, for one more process.
    async fn token(&self, _name: &str) -> Result<Option<Box<dyn TokenPassing>>> {
        Ok(None)
    }

    /// Removes from the engine what the baselines have left there.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Opens the engine of a store. `None` if there is nothing below the lock (`memory:`), or no single server
/// (`redis+quorum:`).
///
/// `id` is unique among the runs that use the engine: keys, nodes and tables are named after it.
///
/// ```
/// # async fn demo() -> clinch::Result<()> {
/// assert!(clinch_bench::baseline::open(&"memory:".parse()?, "1f").await?.is_none());
/// # Ok(()) }
/// # clinch::blocking::block_on(demo()).unwrap();
/// ```
pub async fn open(url: &StoreUrl, id: &str) -> Result<Option<Box<dyn Engine>>> {
    let _ = id; // without any store feature
    Ok(match url.scheme() {
        #[cfg(feature = "sqlite")]
        "sqlite" => Some(Box::new(sqlite::Sqlite::open(url, id)?)),
        #[cfg(feature = "redis")]
        scheme if scheme == "rediss" || scheme.split('+').next() == Some("redis") => {
            let engine = redis::Redis::open(url, id).await?;
            engine.map(|engine| Box::new(engine) as _)
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Some(Box::new(mysql::MySql::open(url, id)?)),
        #[cfg(feature = "etcd")]
        "etcd" => Some(Box::new(etcd::Etcd::open(url, id).await?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Some(Box::new(zookeeper::ZooKeeper::open(url, id).await?)),
        _ => None,
    })
}

/// The value of a key that is held.
#[allow(dead_code, reason = "not used by every combination of features")]
const HOLDER: &str = "the one who holds it";

/// The baselines' own keys are never shared.
#[allow(dead_code, reason = "not used by every combination of features")]
fn taken() -> Error {
    crate::internal("another client has changed a key of the baseline")
}

#[allow(dead_code, reason = "not used by every combination of features")]
fn token_timeout() -> Error {
    Error::new(ErrorKind::Unreachable, "the token was not passed in time")
}
