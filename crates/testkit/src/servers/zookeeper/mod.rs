//! ZooKeeper: one server, or an ensemble of three.

mod builder;
mod ensemble;
mod server;
mod sessions;

use builder::ZooKeeperEngine;
pub use ensemble::Ensemble;

use super::{Builder, Server};

/// One ZooKeeper server; [`Ensemble`] has three.
///
/// ```
/// use clinch_testkit::servers::ZooKeeper;
/// let zookeeper = ZooKeeper::start()?;
/// assert_eq!(zookeeper.word("ruok")?, "imok");
/// assert_eq!(zookeeper.mode().as_deref(), Some("standalone"));
/// zookeeper.kill()?;
/// zookeeper.start_again()?;
/// assert_eq!(zookeeper.sessions()?, 0);
/// zookeeper.start_empty()?;
/// assert_eq!(zookeeper.mode().as_deref(), Some("standalone"));
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type ZooKeeper = Server<ZooKeeperEngine>;

/// Options of a [`ZooKeeper`] that is still to be started. The default has ticks of 200 ms and
/// sessions of 400 ms to 10 minutes.
///
/// ```
/// use clinch_testkit::servers::ZooKeeper;
/// let zookeeper = ZooKeeper::with().config("maxSessionTimeout", "8000").start()?;
/// assert!(zookeeper.word("conf")?.contains("maxSessionTimeout=8000"));
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type ZooKeeperBuilder = Builder<ZooKeeperEngine>;
