//! The MySQL and MariaDB store of clinch: a lock table done right.
//!
//! A name is one row, touched by its primary key only. An uncontended lock is one statement to take and one to
//! release. What happens to a row, and when, is in `clinch-table`; this crate is its dialect for MySQL.
//!
//! Reading order of the source: `open`, `schema` and `columns` (what is stored), `dialect` (which statement is in
//! which file), `claim`, `release`, `renew` (one statement each), `rows` (read and compare-and-set), `priority`
//! (against starvation), `wakes` (how waiters are woken), `connection`. Other lock patterns that users of MySQL
//! know are in [`patterns`].

mod claim;
mod cleanup;
mod columns;
mod config;
mod connection;
mod dialect;
mod doctor;
mod error;
mod events;
mod info;
mod inspect;
mod open;
pub mod patterns;
mod priority;
#[doc(hidden)]
pub mod raw;
mod release;
mod renew;
mod rows;
mod schema;
mod server;
mod sql;
mod wakes;

pub use open::{open, stores};
pub use schema::schema;
