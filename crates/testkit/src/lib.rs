//! What the tests of clinch share.
//!
//! - [`clients`]: a bare store and a whole client for the tests of a store.
//! - [`clock`]: cases for stores that count leases on the clock of a server.
//! - [`conformance`]: the suite that every store runs.
//! - [`fork`]: a child that is a copy of this process.
//! - [`holder`]: a process that holds locks in order to be killed and paused.
//! - [`model`]: random steps on a store and on the reference store.
//! - [`pauses`]: cases where a server or a process stands still.
//! - [`proxy`]: a TCP proxy that does what networks do.
//! - [`servers`]: real servers, started and killed by the tests.
//! - [`stores`]: wrappers that make any store fail, or able to do less.
//! - [`subjects`]: the conformance suite on stores that need servers.
//! - [`toy`]: the smallest store, and how one is written.
//! - [`wait`]: waiting for conditions; dropping a future after so many polls.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use clinch_core::{Clinch, Clock, ErrorKind, memory::{Fault, Op}};
//! use clinch_testkit::stores::Faulty;
//! let (context, inner) = (Clinch::context("app")?, Clinch::memory().store().clone());
//! let store = std::sync::Arc::new(Faulty::new(inner, Clock::boot()));
//! let clinch = Clinch::builder(store.clone(), context).build();
//! store.faults().inject(Op::Read, Fault::ErrorBefore);
//! assert_eq!(clinch.list("").await.unwrap_err().kind(), ErrorKind::Unreachable);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "this crate is test code: it fails by panicking, and plays the user, who has a runtime"
)]

pub mod clients;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod fork;
#[cfg(feature = "conformance")]
pub mod holder;
#[cfg(feature = "conformance")]
pub mod model;
#[cfg(feature = "conformance")]
pub mod pauses;
pub mod proxy;
pub mod servers;
pub mod stores;
#[cfg(feature = "conformance")]
pub mod subjects;
pub mod toy;
pub mod wait;
