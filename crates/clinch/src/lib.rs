//! Distributed locks with fencing tokens, on the engines that you already run.
//!
//! ```
//! # clinch::blocking::block_on(async {
//! let clinch = clinch::connect("memory:").await?;
//! let guard = clinch.lock("orders/42").acquire().await?;
//! println!("held with token {}", guard.token());
//! guard.release().await?;
//! # Ok::<_, clinch::Error>(()) }).unwrap();
//! ```
//!
//! [`Clinch`] is the client. It makes [`Lock`], [`RwLock`], [`Semaphore`], [`MultiLock`] and
//! [`Election`]; acquiring one gives a [`Guard`]. [`blocking`] is the same for synchronous code,
//! [`fence`] is the check at the resource, [`store`] is what authors of stores need.
//!
//! # Stores
//!
//! | URL | feature | store |
//! |---|---|---|
//! | `memory:`, `memory:NAME` | none needed | inside this process, for tests |
//! | `sqlite:`, `sqlite:PATH` | `sqlite` | embedded: several processes on one machine, no server |
//! | `redis://[USER:PASSWORD@]HOST[:6379][/DB]` | `redis` | one Redis server |
//! | `rediss://…` | `redis-tls` | the same, encrypted |
//! | `redis+unix:///PATH` | `redis` | the same, through a unix socket |
//! | `redis+sentinel://S1,S2,S3/MASTER[/DB]` | `redis` | a master with replicas, followed through failovers |
//! | `redis+cluster://H1,H2,H3` | `redis` | a Redis cluster |
//! | `redis+quorum://H1,H2,H3[,H4,H5]` | `redis` | independent Redis servers: a majority must agree |
//! | `mysql://[USER[:PASSWORD]@]HOST[:3306]/DATABASE`, `mariadb://…` | `mysql` | MySQL and MariaDB |
//! | `etcd://[USER:PASSWORD@]HOST[:2379][,HOST…]` | `etcd` | etcd |
//! | `zookeeper://[USER:PASSWORD@]H1[:2181],H2,H3[/PATH]` | `zookeeper` | ZooKeeper |
//!
//! Parameters of the store follow after `?`, such as `?tls=on`; `docs/stores` has a page for each store.
//! [`stores`] lists the stores of this build with their capabilities and guarantees.
//!
//! # Cargo features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `sqlite` | the embedded store; building it needs a C compiler |
//! | `redis` | Redis: one server, sentinels, a cluster, a quorum |
//! | `redis-tls` | `redis`, and `rediss://` with rustls |
//! | `mysql` | MySQL and MariaDB |
//! | `mysql-tls` | `mysql`, and `?tls=on` with rustls |
//! | `etcd` | etcd |
//! | `etcd-tls` | `etcd`, and `?tls=on` with rustls |
//! | `zookeeper` | ZooKeeper |
//! | `zookeeper-sasl` | `zookeeper`, and `?auth=sasl` |
//! | `zookeeper-tls` | `zookeeper`, and `?tls=on` with rustls |
//! | `metrics` | counters and histograms through the `metrics` facade |
//!
//! # Traces and metrics
//!
//! Spans and events go to `tracing` with the target `clinch`. Spans, at level debug: `acquire`
//! (fields `lock`, `store`) around a claim and its wait, `renew` (`store`, `holds`) around each batch
//! of renewals. Events, at level debug: `waiting`, `granted`, `not acquired`, `acquire failed`,
//! `released`; at level trace: `waiting in this process`, `handed over`, `renewed`; as a warning:
//! `lost`.
//!
//! With the feature `metrics`:
//!
//! | metric | kind | labels | meaning |
//! |---|---|---|---|
//! | `clinch_acquisitions_total` | counter | | grants, including hand-overs inside the process |
//! | `clinch_not_acquired_total` | counter | | tries and timed waits that ended without the lock |
//! | `clinch_acquire_errors_total` | counter | `kind`: an [`ErrorKind`] | acquisitions that failed |
//! | `clinch_wait_seconds` | histogram | | time from the call to the grant |
//! | `clinch_hold_seconds` | histogram | | time from the grant to the release |
//! | `clinch_losses_total` | counter | `reason`: a [`LostReason`] | holds that were lost |
//! | `clinch_renewals_total` | counter | | holds that were renewed |
//! | `clinch_renewal_failures_total` | counter | | renewals of a hold that failed |
//! | `clinch_queue_length` | histogram | | waiters for a name in this process, when one joins |
//! | `clinch_hand_overs_total` | counter | | holds passed on inside the process |
//!
//! Labels have the values of [`ErrorKind::as_str`] and [`LostReason::as_str`].

pub mod blocking;
mod connect;
pub mod store;

pub use clinch_core::fence;
pub use connect::{Connect, connect, stores};

// The client, what it makes, and what these give.
pub use clinch_core::{
    ClientId, LostReason, MAX_NAME, Mode, Name, OwnerId, ReleaseReply, Sequencer, Status, Token,
};
pub use clinch_core::{
    Clinch, Election, Guard, HandOver, Leader, LeaderView, Leadership, Lock, MultiGuard, MultiLock,
    Observer, Owner, RwLock, Semaphore,
};
pub use clinch_core::{DEFAULT_LEASE, renew_after, valid_for};
pub use clinch_core::{Effect, Error, ErrorKind, Result};

// What operators see.
pub use clinch_core::redact;
pub use clinch_core::store::{
    Capabilities, Capability, Ending, Event, EventKind, Events, Evicted, Finding, Freshness,
    Guarantees, Limits, LockView, PartyView, Predecessor, Severity, StoreInfo,
};

// For tests that drive the time.
pub use clinch_core::{BootTime, Clock, ManualClock};

/// The file of the embedded store.
///
/// ```
/// let file = clinch::sqlite::file_of(&"sqlite:locks.db".parse()?)?;
/// assert!(file.is_absolute()); // another working directory means another file
/// # Ok::<_, clinch::Error>(())
/// ```
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use clinch_sqlite::{default_path, file_of};
}

/// MySQL and MariaDB: the tables of the store, and locks that live in your own tables.
///
/// ```
/// assert!(clinch::mysql::schema().contains("CREATE TABLE IF NOT EXISTS clinch_names"));
/// ```
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use clinch_mysql::{patterns, schema};
}

/// Redis: the check of tokens for data that live there.
///
/// ```
/// let script = clinch::redis::fence::guarded("return redis.call('SET', KEYS[1], ARGV[1])");
/// assert!(script.contains("FENCED"));
/// ```
#[cfg(feature = "redis")]
pub mod redis {
    pub use clinch_redis::fence;
}

/// etcd: the check of tokens for data that live there.
///
/// ```
/// let token = clinch::Token::new(7, 0).unwrap();
/// assert_eq!(clinch::etcd::fence::text(token).len(), 19);
/// ```
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use clinch_etcd::fence;
}
