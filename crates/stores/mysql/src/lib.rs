//! The MySQL and MariaDB store of clinch: a lock table done right.
//!
//! A name is one row, touched by its primary key only. An uncontended lock is one statement to take
//! and one to give up. Reading order of the source: `schema` and `row` (what is kept), `sql` (the
//! statements), `store`, `group` (the order of steps), `short` and `general` (the two ways; `steps`
//! is what the second one works out), `late` (copies of claims that
//! arrive late), `known`, `quiet` and `recent` (what makes them cheaper), `turn` (what makes the second
//! fair), `bell` (how waiters are woken), `renewals`, `events`,
//! `reaper`. The other locks that users of MySQL know are in `patterns`.

mod bell;
mod config;
mod doctor;
mod error;
mod events;
mod floor;
pub mod patterns;
mod general;
mod group;
mod inspect;
mod known;
mod late;
mod open;
mod options;
mod pool;
mod promises;
mod quiet;
mod reaper;
mod recent;
mod renewals;
mod row;
mod schema;
mod server;
mod short;
mod sql;
mod steps;
mod store;
mod turn;

pub use open::{open, stores};
pub use schema::schema;
pub use store::MySqlStore;
