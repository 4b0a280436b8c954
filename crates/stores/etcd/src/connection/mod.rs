//! The connection to the cluster: made on demand to the first member that answers, dropped when it
//! stalls, made again to the next member.

mod connect;
mod session;
#[cfg(feature = "tls")]
mod tls;

pub(crate) use connect::{Connection, Members};
pub(crate) use session::{Live, Session};
