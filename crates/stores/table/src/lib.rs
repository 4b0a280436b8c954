//! Locks in an SQL table: a name is one row, changed by compare-and-set. An SQL engine is a [`Dialect`].
//!
//! This crate has no driver. It decides what happens to a row, when one statement is enough, what is
//! cached and batched, how copies of requests that arrive late are refused, when idle rows are deleted,
//! and what events are logged. A dialect has the statements, the connections, the wake-up and the schema.
//!
//! # Writing a dialect
//!
//! **Tables** of a dialect, with column types of at least this size:
//!
//! | table | columns |
//! |---|---|
//! | names, key (namespace, name) | version 64 bit; sequence number 64 bit; request 16 bytes; since, until, lease 64 bit; owner 31 bytes; details; ended [`ENDED_BYTES`]; state, nullable |
//! | meta, key (namespace) | watermark, watched_until, last cleanup: 64 bit, 0 at first |
//! | events, key (number) | number, ascending; namespace; time; events |
//!
//! Names are bytes: case and trailing blanks count.
//!
//! **Statements** are the methods of [`Dialect`], [`Rows`], [`EventTable`] and [`IdleRows`]. The table relies
//! on these guarantees:
//!
//! - each statement commits by itself; a write and its events are one transaction. After a request no lock is
//!   held: a client that stops between two requests blocks no other;
//! - writes find a row by its primary key and lock nothing else. Only [`Dialect::renew`] locks several
//!   rows, in the order of their names. So there is no deadlock among clients of the table;
//! - a statement reads the latest committed row (READ COMMITTED), and its conditions are evaluated after
//!   the row is locked;
//! - each write increases the version, and no version of a name is ever used twice: a new row starts above
//!   the watermark. Cleanup relies on it, and so does the rejection of late copies;
//! - the server's clock is read when the statement begins. It may jump: no method may rely on it for
//!   exclusion but by the leases themselves;
//! - a failure says what is known: [`Failure::conflict`] and [`Failure::deadlock`] only if the statement was
//!   rolled back, [`Failure::unanswered`] whenever it may have been applied or may still arrive. If a
//!   dialect sends a statement twice by itself, it sets [`Reply::repeated`];
//! - futures run on the keeper and to their end: a dialect needs no cancel safety, but for
//!   [`Dialect::listen`], which is dropped when the store is closed.
//!
//! **Waking** is a hint ([`Dialect::listen`], [`Dialect::notify`]). If `listen` fails, waiters poll.
//!
//! A store adds `open` (connect, create the tables, [`TableStore::start`]), the URL, the driver's errors and
//! `doctor`. `clinch-mysql` is an example.
//!
//! # Reading order
//!
//! `row` and `record` (what is stored), `steps` (what a step does to it), `batch`, `paths`, `fast_path`,
//! `slow_path`, `late_copies`, `row_cache`, `wakes`, `renew`, `events`, `cleanup`, `store`, `admin`.

mod admin;
mod batch;
mod cleanup;
mod client;
mod dialect;
mod doctor;
mod events;
mod failure;
mod fast_path;
mod inspect;
mod late_copies;
mod paths;
mod record;
mod renew;
mod row;
mod row_cache;
mod slow_path;
mod steps;
mod store;
mod wakes;

pub use dialect::{
    Dialect, EventTable, IdleRows, Logged, Release, Reply, Retake, Rows, Scanned, Sent, Take,
    Watch, Write,
};
pub use failure::Failure;
pub use record::{ENDED_BYTES, id};
pub use row::{Content, Row, corrupt_row};
pub use store::{Options, TableStore};
pub use wakes::{Names, Waiters};
