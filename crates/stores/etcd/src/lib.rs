//! The etcd store of clinch: leases, create revisions, and watches that are open before they are needed.
//!
//! A claim is a key; the order in which the keys of a name were created decides which claims hold. etcd's own
//! clients work the same way, so all of them share one queue. Reading order of the source: `keys` (what is
//! where), `claim` and `standing`, `release` and `cleanup`, `leases` and `renew`, `lock_state` and `wakes`
//! (waiting), then `predecessor`, `inspect` and `events`.
//!
//! **No `protoc`.** The few messages that a lock needs are written by hand in `wire`, with prost's
//! derive; there are no `.proto` files, no generated code and no build script.

mod admin;
mod changes;
mod claim;
mod cleanup;
mod client;
mod config;
mod connection;
mod doctor;
mod error;
mod events;
pub mod fence;
#[doc(hidden)]
pub mod raw;
mod info;
mod inspect;
mod key_slots;
mod keys;
mod leases;
mod ledger;
mod lock_state;
mod open;
mod predecessor;
mod record;
mod release;
mod renew;
mod standing;
mod store;
mod txn;
mod wakes;
mod wire;

pub use open::{open, stores};
pub use store::EtcdStore;
