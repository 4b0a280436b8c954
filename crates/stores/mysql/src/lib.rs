//! The MySQL and MariaDB store of clinch: a lock table done right.
//!
//! A name is one row, touched by its primary key only. An uncontended lock is one statement to take
//! and one to give up. Reading order of the source: `schema` and `row` (what is kept), `sql` (the
//! statements), `store`, `group` and `steps` (the general way), `bell` (how waiters are woken),
//! `renewals`, `events`, `reaper`.

mod bell;
mod config;
mod error;
mod events;
mod group;
mod inspect;
mod open;
mod options;
mod pool;
mod promises;
mod renewals;
mod row;
mod schema;
mod sql;
mod steps;
mod store;

pub use open::{open, stores};
pub use schema::schema;
pub use store::MySqlStore;
