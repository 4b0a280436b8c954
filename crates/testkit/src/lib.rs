//! What the tests of clinch share.
//!
//! - [`conformance`]: the suite that every store runs.
//! - [`holder`]: a process that holds locks in order to be killed and paused.
//! - [`proxy`]: a TCP proxy that does what networks do.
//! - [`stores`]: wrappers that make any store fail, or able to do less.
//! - [`wait`]: waiting for conditions; dropping a future after so many polls.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "this crate is test code: it fails by panicking, and plays the user, who has a runtime"
)]

pub mod conformance;
pub mod holder;
pub mod proxy;
pub mod stores;
pub mod wait;
