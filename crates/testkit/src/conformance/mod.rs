//! The suite that every store runs.
//!
//! A store's crate has one test binary (`harness = false` in its `Cargo.toml`):
//!
//! ```no_run
//! // tests/conformance.rs
//! use clinch_testkit::conformance::{self, Memory, Subject};
//!
//! fn main() -> std::process::ExitCode {
//!     conformance::main(vec![Box::new(Memory)])
//! }
//! ```
//!
//! Each case is one test, for example `sqlite::fifo::grants_in_ticket_order`. A case whose
//! capability the store lacks is listed as ignored with the reason, and its twin in the group
//! `refusal` asserts that asking for it is refused before any I/O. After each case the store is
//! scanned: nothing may be left behind.

mod case;
mod cases;
mod ctx;
mod runner;
mod subject;

pub use case::{Case, Need, Outcome};
pub use ctx::{Client, Ctx};
pub use runner::{catalogue, main};
pub use subject::{Lacking, Memory, Place, Subject};
