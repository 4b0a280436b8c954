//! The embedded store of clinch: locks for the processes of one machine, in a SQLite file.
//!
//! The file has the state; two side channels make it fast. Each process holds a kernel lock on a
//! session file, so that its death is seen at once, and receives datagrams at a socket, so that a
//! release wakes only the process that is next. Without them, leases run out and waiters repeat their
//! claims. The session file also takes renewals while another process keeps the writer's lock.
//!
//! [`clinch_core::machine`] decides each step: a transaction loads the rows of a name, runs the step,
//! and writes what has changed. Reading order: `store`, `batch` (operations of many tasks in few
//! transactions), `connection`, `transaction` and `record` (one name), `sequence` (numbers that never
//! fall), `renew`, then `session`, `wakes`, `boot` and `file` (what could split the store).
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("clinch-doc-lib-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let file = folder.join("locks.db");
//! use clinch_core::{Clinch, blocking};
//! use clinch_sqlite::SqliteStore;
//! let context = Clinch::context("app")?;
//! let url = format!("sqlite:{}", file.display()).parse()?;
//! let store = std::sync::Arc::new(SqliteStore::open(&url, context.clone())?);
//! let clinch = blocking::Clinch::from(Clinch::builder(store, context).build());
//! let guard = clinch.lock("orders/42").acquire()?; // excludes other processes of this machine
//! assert!(guard.release()?.was_held());
//! clinch.close()?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(()) }
//! ```

mod admin;
mod batch;
mod boot;
mod cache;
mod claim;
mod cleanup;
mod config;
mod connection;
mod doctor;
mod error;
mod events;
mod file;
mod info;
mod inspect;
mod ledger;
mod open;
mod record;
mod release;
mod renew;
mod schema;
mod sequence;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod wakes;

pub use config::{default_path, file_of};
pub use store::SqliteStore;
