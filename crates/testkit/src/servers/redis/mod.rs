//! Redis: one server, one with replicas and sentinels, a cluster.

mod builder;
mod cluster;
mod monitor;
mod resp;
mod sentinels;
mod server;
mod slots;

use builder::RedisEngine;
pub use cluster::Cluster;
pub use resp::Reply;
pub use sentinels::Sentinels;
pub use slots::{SlotMigration, slot_of};

use super::{Builder, Server};

/// One Redis server.
///
/// It has a socket file beside its port, which the kit uses for its own commands.
///
/// ```
/// use clinch_testkit::servers::Redis;
/// let redis = Redis::with().append_only("always").start()?;
/// redis.cli(&["SET", "a", "1"])?;
/// redis.kill()?;
/// redis.start_again()?;
/// assert_eq!(redis.cli(&["GET", "a"])?, "1");
/// redis.start_empty()?;
/// assert_eq!(redis.cli(&["DBSIZE"])?, "0");
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type Redis = Server<RedisEngine>;

/// Options of a [`Redis`] that is still to be started. The default is a server without persistence
/// and password.
///
/// ```
/// use clinch_testkit::servers::Redis;
/// let redis = Redis::with().password("x").config("maxmemory-policy", "allkeys-lru").start()?;
/// assert!(redis.url().starts_with("redis://:x@127.0.0.1:"));
/// assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory-policy"])?, "maxmemory-policy\nallkeys-lru");
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type RedisBuilder = Builder<RedisEngine>;
