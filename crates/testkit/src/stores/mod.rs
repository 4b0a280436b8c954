//! Stores around stores: to make any of them misbehave, or able to do less.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use clinch_core::{Clinch, ErrorKind, store::Capability};
//! use clinch_testkit::stores::Without;
//! let (context, full) = (Clinch::context("app")?, Clinch::memory().store().clone());
//! let store = std::sync::Arc::new(Without::new(full, Capability::Queue));
//! let clinch = Clinch::builder(store, context).build();
//! let error = clinch.lock("a").fair().acquire().await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Unsupported);
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod faulty;
mod without;

pub use faulty::Faulty;
pub use without::Without;
#[cfg(feature = "conformance")]
pub(crate) use without::less;
