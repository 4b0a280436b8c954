//! The Redis store of clinch: locks on one Redis, on Sentinel, on a cluster, or on several
//! independent servers.
//!
//! Each step of a lock is one atomic script at the server. Reading order of the source: `store`,
//! `claim`, `renew` and `release`, `batch` (steps of many tasks in few calls), `ledger` (claims
//! without a reply), the scripts in `scripts` (`fast_path.lua`, `slow_path.lua`), `record` (the
//! formats), then `wakes` and `events`. `connection` has the servers and their connections, `cluster`
//! and `sentinel` what these deployments need in addition. Several independent servers are in
//! `quorum`, the locks of other libraries in `guest`.

mod admin;
mod batch;
mod claim;
mod cluster;
mod config;
mod connection;
mod doctor;
mod error;
mod events;
pub mod fence;
#[doc(hidden)]
pub mod raw;
mod guest;
mod info;
mod inspect;
mod keys;
mod ledger;
mod open;
mod quorum;
mod record;
mod release;
mod renew;
mod scripts;
mod sentinel;
mod store;
mod strict;
mod wakes;

pub use guest::GuestStore;
pub use open::{open, stores};
pub use quorum::QuorumStore;
pub use store::RedisStore;
