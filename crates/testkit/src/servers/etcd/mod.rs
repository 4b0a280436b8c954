//! etcd: one server, or a cluster of three.

mod builder;
mod cluster;
mod metrics;
mod peers;
mod server;

use builder::EtcdEngine;
pub use cluster::EtcdCluster;
pub use metrics::Metrics as EtcdMetrics;

use super::{Builder, Server};

/// One etcd server; [`EtcdCluster`] has three. Its shortest lease is one second.
///
/// A member of a cluster is ready only while a majority runs, and cannot be started
/// [empty](Server::start_empty).
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::start()?;
/// etcd.ctl(&["put", "a", "1"])?;
/// etcd.kill()?;
/// etcd.start_again()?;
/// assert_eq!(etcd.ctl(&["get", "a"])?, "a\n1");
/// etcd.start_empty()?;
/// assert_eq!(etcd.ctl(&["get", "a"])?, "");
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type Etcd = Server<EtcdEngine>;

/// Options of an [`Etcd`] that is still to be started. The members of a cluster share a TLS
/// certificate, and talk to each other without TLS.
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::with().root_password("x").user("app", "y", "app/").start()?;
/// assert!(etcd.url().starts_with("etcd://root:x@127.0.0.1:"));
/// let app = |args: &[&str]| etcd.ctl(&[&["--user=app:y"], args].concat());
/// assert_eq!(app(&["put", "app/a", "1"])?, "OK");
/// assert!(app(&["put", "b", "1"]).is_err());
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type EtcdBuilder = Builder<EtcdEngine>;
