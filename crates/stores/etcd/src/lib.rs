//! The etcd store of clinch: leases, create revisions, and a watch that stands before it is needed.
//!
//! A claim is a key; who holds follows from the order in which keys were created, which is also how
//! etcd's own clients do it, so all queue together. Reading order of the source: `keys` (what is
//! where), `claim`, `stand` and `leave` (the steps of a lock), `leases` and `renew`, `mirror` and `wakes`
//! (waiting), then `inspect` and `events`.
//!
//! **No `protoc`.** The few messages that a lock needs are written by hand in `wire`, with prost's
//! derive; there are no `.proto` files, no generated code and no build script.

mod changes;
mod claim;
mod config;
mod connection;
mod core;
mod doctor;
mod error;
mod events;
pub mod fence;
mod inspect;
mod keys;
mod lease;
mod leases;
mod leave;
mod mirror;
mod open;
mod ours;
mod promises;
#[doc(hidden)]
pub mod raw;
mod record;
mod renew;
mod session;
mod stand;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod txn;
mod wakes;
mod wire;

pub use open::{open, stores};
pub use store::EtcdStore;
