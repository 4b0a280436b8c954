//! The ZooKeeper store of clinch: an ephemeral sequential node for each claim, in the layout of
//! Curator's locks.
//!
//! Reading order of the source: `store`, `queue` (who holds, by the names of nodes), `claim`,
//! `create_node`, `decide_turn`, `wakes` (waiting), `renew`, `suspicions` (losses noticed before a
//! renewal), `release`, then `connection` (one session for each length of lease), `ledger` (this
//! client's claims), `predecessor` (how the last hold ended), `cleanup`, `inspect` and `events`.

mod admin;
mod claim;
mod cleanup;
mod client;
mod config;
mod connection;
mod create_node;
mod decide_turn;
mod doctor;
mod error;
mod events;
mod folders;
mod info;
mod inspect;
mod keys;
mod ledger;
mod move_node;
mod observed_lock;
mod open;
mod own_claim;
mod predecessor;
mod queue;
#[doc(hidden)]
pub mod raw;
mod record;
mod release;
mod remove_node;
mod renew;
mod store;
mod suspicions;
mod wakes;

pub use open::{open, stores};
pub use store::ZooKeeperStore;
