//! The lock engine of clinch.
mod error;
mod ids;
pub mod keeper;
pub mod machine;
pub mod memory;
mod name;
pub mod store;
mod time;
mod token;
mod url;

pub use error::{Effect, Error, ErrorKind, Result};
pub use ids::{ClientId, ClientInfo, Identity, OwnerId, RequestId};
pub use name::{MAX_NAME, Name, check_namespace};
pub use store::LostReason;
pub use time::{
    BootTime, Clock, ManualClock, Sleep, format_duration, parse_duration, sequence_micros,
};
pub use token::{LOCAL_BITS, MAX_LOCAL, MAX_SEQ, Mode, Sequencer, Token};
pub use url::{StoreUrl, redact};
