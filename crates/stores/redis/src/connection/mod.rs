//! Connections to servers: which server a key is at, one connection for each, made again when lost.

mod driver;
mod replicas;
mod request;
mod server;
mod server_clock;
mod servers;
mod session;
#[cfg(feature = "tls")]
mod tls;

pub(crate) use driver::client;
pub(crate) use replicas::{settled, wait};
pub(crate) use request::Trouble;
pub(crate) use server::Server;
pub(crate) use servers::{Route, Servers};
pub(crate) use session::{Live, Locate, PushHandler, Session};
