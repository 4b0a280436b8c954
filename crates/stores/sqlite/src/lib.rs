//! The embedded store of clinch: locks for the processes of one machine, in a SQLite file.
//!
//! One file is the truth; two side channels make it quick. Each process holds a kernel lock on a
//! session file, so that its death is seen at once, and listens at a datagram socket, so that a
//! release wakes the one process that is next. Without them leases run out and waiters ask again.
//! The session file also takes renewals while another process keeps the database from being written.
//!
//! What happens to a name is decided by [`clinch_core::machine`]: a transaction loads the name's
//! rows, runs the step, and writes the difference. Reading order of the source: `store`, `writer`
//! (operations of many tasks in few transactions), `core` (the connection), `tx` and `rows` (one
//! name), `sequence` (numbers that never fall), `renewals` and `beats`, then the side channels
//! `session`, `wakes`, `deaths`, and `boot`, `log`, `place`, `folder` (what could split the store).
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
//! let guard = clinch.lock("orders/42").acquire()?; // no other process of this machine has it
//! assert!(guard.release()?.was_held());
//! clinch.close()?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(()) }
//! ```

mod admin;
mod beats;
mod blocker;
mod boot;
mod cache;
mod config;
mod core;
mod dead;
mod deaths;
mod doctor;
mod error;
mod events;
mod file;
mod folder;
mod home;
mod info;
mod log;
mod maintenance;
mod mine;
mod open;
mod owner;
mod place;
mod queue;
mod renewals;
mod rows;
mod schema;
mod sequence;
mod session;
mod steps;
mod store;
#[cfg(test)]
mod tests;
mod tx;
mod wakes;
mod writer;

pub use config::{default_path, file_of};
pub use store::SqliteStore;
