//! The lock engine of clinch: API, store contract, reference store. It depends on no driver.
//!
//! Applications depend on the crate `clinch`, which adds `connect(url)` and lists the public names;
//! stores depend on this one. It has:
//!
//! - [`Clinch`] and its primitives: [`Lock`], [`RwLock`], [`Semaphore`], [`MultiLock`], [`Election`];
//!   [`Guard`], [`Owner`], [`fence`], [`blocking`].
//! - [`store`]: the contract that each store implements; [`machine`]: the reference implementation of
//!   what a store does; [`memory`]: the store made of it, with faults on demand.
//! - [`keeper`]: the background thread that renews, releases and withdraws.

mod api;
mod engine;
mod error;
#[cfg(test)]
mod explore;
mod ids;
pub mod keeper;
pub mod machine;
pub mod memory;
mod name;
pub mod store;
mod telemetry;
mod time;
#[cfg(feature = "tls")]
pub mod tls;
mod token;
mod url;

pub use api::{
    Clinch, ClinchBuilder, Election, Guard, Leader, LeaderView, Leadership, Lock, MultiGuard,
    MultiLock, Observer, Owner, RwLock, Semaphore, blocking, fence,
};
pub use engine::{DEFAULT_LEASE, HandOver, Status, renew_after, valid_for};
pub use error::{Effect, Error, ErrorKind, Result};
pub use ids::{ClientId, ClientInfo, Identity, OwnerId, RequestId};
pub use name::{MAX_NAME, Name, check_namespace};
pub use store::{LostReason, ReleaseReply};
pub use time::{
    BootTime, Clock, ManualClock, Sleep, format_duration, parse_duration, sequence_micros,
};
pub use token::{LOCAL_BITS, MAX_LOCAL, MAX_SEQ, Mode, Sequencer, Token};
pub use url::{StoreUrl, TlsFiles, percent_decode, redact};
