//! Ports for servers that are killed and started again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use clinch_core::{Error, ErrorKind, Result};

/// A free port of 127.0.0.1, reserved for the life of this value.
///
/// It is below the range from which the kernel serves `bind(0)` and outgoing connections: a port of
/// that range may be in use when a killed server is started again. Processes that use this kit
/// reserve ports with sockets in the abstract namespace, which end with the process, so none takes
/// the port of another's killed server.
///
/// ```
/// use clinch_testkit::servers::Port;
/// let (a, b) = (Port::reserve()?, Port::reserve()?);
/// assert_ne!(a.number(), b.number());
/// std::net::TcpListener::bind(("127.0.0.1", a.number())).unwrap();
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Reserves the port among test processes.
    _claim: UnixListener,
}

impl Port {
    /// Reserves a free port.
    pub fn reserve() -> Result<Self> {
        let (low, high) = (10_000, ephemeral_start().max(11_000));
        for _ in 0..1_000 {
            let wide = RandomState::new().hash_one(low) % u64::from(high - low);
            let number = low + u16::try_from(wide).unwrap_or_default();
            let name = format!("clinch-testkit-port-{number}");
            let claim = SocketAddr::from_abstract_name(name)
                .and_then(|name| UnixListener::bind_addr(&name));
            if let (Ok(claim), Ok(_)) = (claim, TcpListener::bind(("127.0.0.1", number))) {
                return Ok(Self {
                    number,
                    _claim: claim,
                });
            }
        }
        let message = format!("no free port between {low} and {high}");
        Err(Error::new(ErrorKind::Unreachable, message))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Starts a server on a free port, and retries on another one if the port was taken meanwhile.
///
/// The error's message tells: [`ServerProcess::wait_ready`](super::ServerProcess::wait_ready) puts
/// the end of the log there, which has the C library's text for it.
///
/// ```
/// use clinch_testkit::servers::{Port, on_free_port};
/// let listener = on_free_port(|port: Port| {
///     Ok(std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap())
/// })?;
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub fn on_free_port<T>(mut start: impl FnMut(Port) -> Result<T>) -> Result<T> {
    let mut tries = 5;
    loop {
        tries -= 1;
        match start(Port::reserve()?) {
            Err(e) if tries > 0 && is_taken(e.message()) => {}
            other => return other,
        }
    }
}

/// Programs that do not use the C library write it without the capital.
fn is_taken(message: &str) -> bool {
    message.contains("ddress already in use")
}

/// The first port that the kernel assigns by itself.
fn ephemeral_start() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| {
        let first = range.split_whitespace().next()?;
        first.parse().ok()
    });
    first.unwrap_or(32_768)
}
