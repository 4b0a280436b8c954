//! Counters and health of an etcd server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clinch_core::Result;

use crate::servers::failed;

/// Limit for an answer; a paused member never answers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The counters of an etcd at one moment; see [`Etcd::metrics`](super::Etcd::metrics).
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::start()?;
/// etcd.ctl(&["put", "a", "1"])?;
/// let metrics = etcd.metrics()?;
/// assert_eq!(metrics.sum("grpc_server_handled_total", r#"method="Put""#), 1);
/// assert_eq!(metrics.sum("etcd_server_is_leader", ""), 1);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Metrics(String);

impl Metrics {
    pub(super) fn read(from: SocketAddr) -> Result<Self> {
        let page = get(from, "/metrics");
        page.map(Self)
            .map_err(|e| failed(format!("no counters at {from}"), e))
    }

    /// The sum over all lines of this name whose labels contain `label`.
    pub fn sum(&self, name: &str, label: &str) -> u64 {
        let values = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let same = labels.is_empty() || labels.starts_with('{');
            let value = value.parse::<f64>().ok()?;
            (same && labels.contains(label)).then_some(value)
        });
        // The values are whole, but large ones are written as 1e+06.
        format!("{:.0}", values.sum::<f64>())
            .parse()
            .unwrap_or_default()
    }

    /// The number of requests: each unary call, and each message that clients sent on a stream, such
    /// as a keep-alive.
    pub fn requests(&self) -> u64 {
        self.sum("grpc_server_msg_received_total", "")
    }
}

/// Whether the member can read, which needs a leader and a majority.
pub(super) fn is_healthy(at: SocketAddr) -> bool {
    get(at, "/health").is_ok_and(|page| page.contains(r#""health":"true""#))
}

fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
