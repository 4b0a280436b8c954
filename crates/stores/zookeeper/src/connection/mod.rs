//! Connections: each session with the ensemble has one, which the driver keeps up.

mod session;
mod sessions;
mod tls;

pub(crate) use session::{Session, optional};
pub(crate) use sessions::Sessions;
pub(crate) use tls::Tls;
