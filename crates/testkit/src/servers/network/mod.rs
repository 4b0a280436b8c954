//! A private network of network namespaces, for servers that are cut off from each other.

mod addresses;
mod wires;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use clinch_core::{Error, ErrorKind, Result};

use super::first_line;
use wires::Wires;

/// Hosts with an address each, joined by one switch. Removed when neither it nor a host is in use.
///
/// Packets between hosts that are cut off from each other are lost, as on a real network: connections
/// stay open, and their data is delivered after the network has healed. The test process reaches
/// every host that is not [cut](Self::cut). A server runs on a host with
/// [`on_host`](super::Builder::on_host).
///
/// It needs `ip` (Debian: iproute2) and the right to make network namespaces, which root has:
/// [`check`](Self::check) tries it. What a killed process left is removed by the next process that
/// starts a network.
///
/// ```
/// use clinch_testkit::servers::{Network, Redis};
/// # if Network::check().is_err() { return Ok(()) }
/// let network = Network::start(2)?;
/// let redis = Redis::with().on_host(network.host(0)?).start()?;
/// assert_eq!(redis.url(), format!("redis://{}:{}", network.host(0)?.address(), redis.port()));
/// network.cut(network.host(0)?)?;
/// assert_eq!(redis.cli(&["PING"])?, "PONG"); // the kit's own commands go through a file
/// network.heal()?;
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Host>,
    wires: Arc<Wires>,
}

impl Network {
    /// The largest number of hosts.
    pub const MOST: usize = 12;

    /// Makes a network with this number of hosts.
    pub fn start(hosts: usize) -> Result<Self> {
        if hosts > Self::MOST {
            let text = format!("a network has at most {} hosts", Self::MOST);
            return Err(Error::invalid(text));
        }
        let wires = Arc::new(Wires::lay(hosts)?);
        let host = |index| Host {
            wires: wires.clone(),
            index,
        };
        Ok(Self {
            hosts: (0..hosts).map(host).collect(),
            wires,
        })
    }

    /// Whether this process can make one; it is tried once. The error says why not.
    ///
    /// ```
    /// use clinch_testkit::servers::Network;
    /// if let Err(why) = Network::check() {
    ///     println!("not applicable: {why}");
    /// }
    /// ```
    pub fn check() -> Result<()> {
        static TRIED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
        let tried = TRIED.get_or_init(|| match Self::start(1) {
            Ok(_) => Ok(()),
            Err(why) => Err(first_line(&why)),
        });
        tried.clone().map_err(|why| {
            let text = format!("no network namespaces can be made here: {why}");
            Error::new(ErrorKind::Unsupported, text)
                .with_advice("it takes root, and iproute2 must be installed")
        })
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One host.
    pub fn host(&self, index: usize) -> Result<&Host> {
        let text = || format!("there are {} hosts", self.hosts.len());
        self.hosts.get(index).ok_or_else(|| Error::invalid(text()))
    }

    /// Cuts a host off from all others, and from the test process.
    pub fn cut(&self, host: &Host) -> Result<()> {
        self.wires.unplug(host.index)
    }

    /// Divides the hosts: those of a group reach each other, and none of another group. The test
    /// process and hosts in no group still reach all.
    ///
    /// ```
    /// use clinch_testkit::servers::Network;
    /// # if Network::check().is_err() { return Ok(()) }
    /// let network = Network::start(3)?;
    /// let (leader, others) = network.hosts().split_at(1);
    /// network.divide(&[leader, others])?;
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn divide(&self, groups: &[&[Host]]) -> Result<()> {
        let number = |group: &&[Host]| group.iter().map(|host| host.index).collect();
        let groups: Vec<Vec<usize>> = groups.iter().map(number).collect();
        self.wires.divide(&groups)
    }

    /// Connects all hosts again.
    pub fn heal(&self) -> Result<()> {
        self.wires.heal()
    }
}

/// A host of a [`Network`]: a network namespace with an address.
///
/// ```
/// use clinch_testkit::servers::Network;
/// # if Network::check().is_err() { return Ok(()) }
/// let network = Network::start(2)?;
/// assert_ne!(network.host(0)?.address(), network.host(1)?.address());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Host {
    wires: Arc<Wires>,
    index: usize,
}

impl Host {
    /// The address at which others reach it.
    pub fn address(&self) -> Ipv4Addr {
        self.wires.address(self.index)
    }

    /// The file of the namespace, for `nsenter`.
    pub(super) fn namespace(&self) -> PathBuf {
        self.wires.namespace(self.index)
    }
}

/// The address of a server: its host's, or 127.0.0.1.
pub(super) fn address(host: Option<&Host>) -> Ipv4Addr {
    host.map_or(Ipv4Addr::LOCALHOST, Host::address)
}
