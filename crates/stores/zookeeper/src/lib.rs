//! The ZooKeeper store of clinch: an ephemeral sequential node for each claim, in the layout of
//! Curator's locks.
//!
//! Reading order of the source: `store`, `places` (who holds, told by names), `claim`, `fresh` (its
//! node is made), `judge` (whose turn it is), `wakes` (waiting), `renew`, `doubt` (losses that are
//! heard of before a renewal), `leave`, then `session` (one for each length of lease), `book` (what
//! this client has asked for), `notice` (how the last hold ended), `janitor`, `inspect` and `events`.

mod admin;
mod book;
mod claim;
mod config;
mod core;
mod doctor;
mod doubt;
mod error;
mod events;
mod fresh;
mod info;
mod inspect;
mod janitor;
mod judge;
mod leave;
mod notice;
mod open;
mod paths;
mod places;
mod record;
mod renew;
mod scene;
mod session;
mod store;
mod tls;
mod wakes;

pub use open::{open, stores};
pub use store::ZooKeeperStore;
