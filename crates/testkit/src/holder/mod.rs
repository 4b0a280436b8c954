//! A process that holds locks in order to be killed and paused.
//!
//! The conformance suite starts its own executable again with [`FLAG`], so a store's tests need no
//! further binary. The process reads one JSON command a line and answers with one JSON line; it ends
//! with its input, and the kernel kills it when the test's thread ends, even while it is stopped.
//!
//! ```standalone_crate
//! # use std::{process::ExitCode, sync::Arc, time::Duration};
//! # use clinch_testkit::conformance::{Memory, Subject};
//! # use clinch_testkit::holder::{self, Claiming, Holder};
//! # fn main() -> ExitCode {
//! # let mut words = std::env::args().skip(1);
//! # if words.next().as_deref() == Some(holder::FLAG) {
//! #     return holder::serve(&[Arc::new(Memory) as Arc<dyn Subject>], words.collect());
//! # }
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(async {
//! // A test binary whose `main` gives way to `holder::serve` when it is started with `FLAG`.
//! let mut child = Holder::spawn("memory", "memory:", "clinch").await;
//! assert_ne!(child.pid(), std::process::id());
//! let token = child.acquire(&Claiming::lock("a", Duration::from_secs(30))).await;
//! assert!(token.is_some() && child.is_valid("a").await);
//! child.kill();
//! # });
//! # ExitCode::SUCCESS
//! # }
//! ```

mod child;
mod driver;

pub use child::serve;
pub use driver::{Claiming, Holder};

/// The first argument of a process that is to be a holder.
///
/// ```
/// use clinch_testkit::holder::FLAG;
/// let is_holder = std::env::args().nth(1).as_deref() == Some(FLAG);
/// assert!(!is_holder);
/// ```
pub const FLAG: &str = "--clinch-holder";
