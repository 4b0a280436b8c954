//! Real servers, started by the tests themselves on free ports of 127.0.0.1, each with a private
//! folder.
//!
//! [`ServerProcess`], [`Folder`], [`Port`], [`Certificates`] and [`ClockShim`] are for every engine. [`Redis`] is one
//! server of that engine, [`Sentinels`] and [`Cluster`] are six. [`MariaDb`], [`Etcd`] and
//! [`ZooKeeper`] are one server each, [`EtcdCluster`] and [`Ensemble`] are three. [`Network`] has hosts for them,
//! which can be cut off from each other.
//!
//! Everything blocks, for a bounded time: a test starts its servers before it needs them, and asks
//! them for a few words only. Nothing is left behind: a server ends with its value, and with the
//! test process, however that ends.
//!
//! ```
//! use clinch_testkit::servers::Redis;
//! let redis = Redis::start()?;
//! redis.cli(&["SET", "a", "1"])?;
//! redis.kill()?;
//! redis.start_again()?;
//! assert_eq!(redis.cli(&["GET", "a"])?, ""); // it kept nothing: persistence is asked for
//! # Ok::<(), clinch_core::Error>(())
//! ```

mod disk;
mod etcd;
mod etcd_builder;
mod etcd_cluster;
mod etcd_metrics;
mod etcd_peers;
mod folder;
mod mariadb;
mod mariadb_builder;
mod mariadb_flavour;
mod mariadb_stranger;
mod mariadb_template;
mod network;
mod network_plot;
mod network_wires;
mod port;
mod process;
mod redis;
mod redis_builder;
mod redis_cluster;
mod redis_monitor;
mod redis_sentinel;
mod redis_slots;
mod resp;
mod shim;
mod spawner;
mod tls;
mod tool;
mod zookeeper;
mod zookeeper_builder;
mod zookeeper_ensemble;
mod zookeeper_sessions;

pub use disk::Disk;
pub use etcd::Etcd;
pub use etcd_builder::EtcdBuilder;
pub use etcd_cluster::EtcdCluster;
pub use etcd_metrics::Metrics as EtcdMetrics;
pub use folder::Folder;
pub use mariadb::MariaDb;
pub use mariadb_builder::MariaDbBuilder;
pub use mariadb_stranger::Stranger;
pub use network::{Host, Network};
pub use port::{Port, on_free_port};
pub use process::{Recipe, ServerProcess};
pub use redis::Redis;
pub use redis_builder::RedisBuilder;
pub use redis_cluster::Cluster;
pub use redis_sentinel::Sentinels;
pub use redis_slots::{SlotMigration, slot_of};
pub use resp::Reply;
pub use shim::{ClockShim, Step};
pub use tls::Certificates;
pub use zookeeper::ZooKeeper;
pub use zookeeper_builder::ZooKeeperBuilder;
pub use zookeeper_ensemble::Ensemble;

use std::io;
use std::time::{Duration, Instant};

use clinch_core::{Error, ErrorKind};

use crate::wait::PATIENCE;

/// Blocks until a condition holds; `false` when it does not come true.
fn until(mut condition: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() >= give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// An error that says what could not be done, and why.
fn failed(what: impl std::fmt::Display, why: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{what}: {why}")).with_source(why)
}

/// What an error says before it goes into detail.
fn first_line(error: &Error) -> String {
    error
        .message()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
