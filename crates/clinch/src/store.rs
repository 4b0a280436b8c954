//! For authors of stores and of tools: the store contract and what a store is built with.
//!
//! Programs that only use locks need nothing of this module.
//!
//! - [`Store`] is the contract. [`machine`] is the reference implementation of what a store does to
//!   one name; [`memory`] is the store made of it, with faults on demand.
//! - [`ClinchBuilder`] makes a client of an opened store.
//! - [`keeper`] is the background thread on which stores do their I/O.
//! - [`StoreUrl`] reads the parameters of a URL.
//!
//! ```
//! # clinch::blocking::block_on(async {
//! use clinch::{Clinch, store::memory::MemoryStore};
//! let context = Clinch::context("app")?;
//! let store = std::sync::Arc::new(MemoryStore::new(context.clone()));
//! let clinch = Clinch::builder(store.clone(), context).build();
//! store.faults().cut(true); // no request arrives any more
//! assert!(clinch.inspect("a").await.is_err());
//! # Ok::<_, clinch::Error>(()) }).unwrap();
//! ```

// The contract, which is a list of names in its own crate. It includes views, events and store
// information, which are at the root as well.
pub use clinch_core::store::*;
#[cfg(any(
    feature = "mysql-tls",
    feature = "redis-tls",
    feature = "zookeeper-tls"
))]
pub use clinch_core::tls;
pub use clinch_core::{
    ClientInfo, ClinchBuilder, Identity, LOCAL_BITS, MAX_LOCAL, MAX_SEQ, RequestId, Sleep,
    StoreUrl, TlsFiles, check_namespace, format_duration, keeper, machine, memory, parse_duration,
    percent_decode, sequence_micros,
};
