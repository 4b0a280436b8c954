//! The lock engine of clinch: API, store contract, reference store. It knows no driver.
//!
//! Users depend on the crate `clinch`, which adds `connect(url)`. What is here:
//!
//! - [`Clinch`] and its primitives: [`Lock`], [`RwLock`], [`Semaphore`], [`MultiLock`], [`Election`];
//!   [`Guard`], [`Owner`], [`fence`], [`blocking`].
//! - [`store`]: the contract that each store fills; [`machine`]: the reference that defines what a
//!   store does; [`memory`]: the store made of it, with faults on demand.
//! - [`keeper`]: the background thread that renews, releases and withdraws.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! # let clinch = clinch_core::Clinch::memory();
//! let gate = clinch_core::fence::Gate::new(); // stands at the resource
//! let guard = clinch.lock("orders/42").acquire().await?;
//! assert!(gate.admit(guard.token(), || "written").is_ok());
//! assert!(guard.release().await?.was_held());
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

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
pub use engine::{HandOver, Settings, Status, valid_for};
pub use error::{Effect, Error, ErrorKind, Result};
pub use ids::{ClientId, ClientInfo, Identity, OwnerId, RequestId};
pub use name::{MAX_NAME, Name, check_namespace};
pub use store::{LostReason, ReleaseReply};
pub use time::{
    BootTime, Clock, ManualClock, Sleep, format_duration, parse_duration, sequence_micros,
};
pub use token::{LOCAL_BITS, MAX_LOCAL, MAX_SEQ, Mode, Sequencer, Token};
pub use url::{StoreUrl, TlsFiles, percent_decode, redact};
