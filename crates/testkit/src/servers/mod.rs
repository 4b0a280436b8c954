//! Real servers, started by the tests themselves on free ports of 127.0.0.1, each with a private
//! folder.
//!
//! A [`Server`] is generic over its [`Engine`]; [`Redis`], [`MariaDb`], [`Etcd`] and [`ZooKeeper`]
//! are one server each. [`Sentinels`] and [`Cluster`] are six Redis servers, [`EtcdCluster`] and
//! [`Ensemble`] three servers of their engines. [`Network`] has hosts for them that can be cut off
//! from each other. [`ServerProcess`], [`Folder`], [`Port`], [`Disk`], [`Certificates`] and
//! [`ClockShim`] work for any program.
//!
//! All calls block, for a bounded time. No process outlives the test: a server ends when its value
//! is dropped, and when the test process ends for any reason.
//!
//! ```
//! use clinch_testkit::servers::Redis;
//! let redis = Redis::start()?;
//! redis.cli(&["SET", "a", "1"])?;
//! redis.kill()?;
//! redis.start_again()?;
//! assert_eq!(redis.cli(&["GET", "a"])?, ""); // Redis has no persistence by default
//! # Ok::<(), clinch_core::Error>(())
//! ```

mod builder;
mod certificates;
mod clock_shim;
mod disk;
mod engine;
mod etcd;
mod folder;
mod mariadb;
mod network;
mod port;
mod process;
mod recipe;
mod redis;
mod server;
mod spawner;
mod tool;
mod zookeeper;

pub use builder::Builder;
pub use certificates::Certificates;
pub use clock_shim::{ClockShim, Step};
pub use disk::Disk;
pub use engine::{Engine, LibcClock};
pub use etcd::{Etcd, EtcdBuilder, EtcdCluster, EtcdMetrics};
pub use folder::Folder;
pub use mariadb::{MariaDb, MariaDbBuilder, Stranger};
pub use network::{Host, Network};
pub use port::{Port, on_free_port};
pub use process::ServerProcess;
pub use recipe::Recipe;
pub use redis::{Cluster, Redis, RedisBuilder, Reply, Sentinels, SlotMigration, slot_of};
pub use server::Server;
pub use zookeeper::{Ensemble, ZooKeeper, ZooKeeperBuilder};

use std::io;
use std::time::{Duration, Instant};

use clinch_core::{Error, ErrorKind};

use crate::wait::PATIENCE;

/// Blocks until a condition holds; `false` if it does not within [`PATIENCE`].
fn until(mut condition: impl FnMut() -> bool) -> bool {
    until_some(|| condition().then_some(())).is_some()
}

/// Blocks until there is a value; `None` if there is none within [`PATIENCE`].
fn until_some<T>(mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let found = find();
        if found.is_some() || Instant::now() >= give_up {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An error that says what failed, and why.
fn failed(what: impl std::fmt::Display, why: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{what}: {why}")).with_source(why)
}

/// The first line of an error's message.
fn first_line(error: &Error) -> String {
    error
        .message()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
