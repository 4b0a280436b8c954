//! A process that holds locks in order to be killed and paused.
//!
//! The conformance suite starts its own executable again with [`FLAG`], so a store's tests need no
//! further binary. The process reads one JSON command a line and answers with one JSON line; it ends
//! with its input, and the kernel kills it when the test's thread ends, even while it is stopped.

mod child;
mod driver;

pub use child::serve;
pub use driver::{Claiming, Holder};

/// The first argument of a process that is to be a holder.
pub const FLAG: &str = "--clinch-holder";
