//! The Redis store of clinch: locks on one Redis, on Sentinel, on a cluster, or on several
//! independent servers.
//!
//! Each step of a lock is one atomic script at the server. Reading order of the source: `store`,
//! `group` (steps of many tasks in few calls), `claims` and `ledger` (requests without a reply),
//! `servers` and `session` (where they go), the script itself in `scripts/steps`, `record` (what
//! travels), then `wakes` and `events`. What a cluster needs more is in `cluster`, `route`, `shards` and
//! `listener`. Several independent servers are in `quorum`, the locks of other libraries in `guest`.

mod batch;
mod claims;
mod cluster;
mod config;
mod doctor;
mod error;
mod events;
pub mod fence;
mod group;
mod guest;
mod inspect;
mod keys;
mod ledger;
mod listener;
mod open;
mod promises;
mod quorum;
#[doc(hidden)]
pub mod raw;
mod record;
mod renewals;
mod replicas;
mod route;
mod scripts;
mod sentinel;
mod sentinel_watch;
mod server;
mod server_clock;
mod servers;
mod session;
mod shards;
mod slot_keys;
mod slots;
mod store;
mod strict;
#[cfg(feature = "tls")]
mod tls;
mod wakes;

pub use guest::GuestStore;
pub use open::{open, stores};
pub use quorum::QuorumStore;
pub use store::RedisStore;
