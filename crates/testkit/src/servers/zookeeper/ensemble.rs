//! Three ZooKeeper servers that elect a leader.

use clinch_core::{Error, ErrorKind, Result};

use super::{ZooKeeper, ZooKeeperBuilder};
use crate::servers::network::address;
use crate::servers::{Host, Port, until, until_some};

/// A running ensemble of three.
///
/// ```
/// use clinch_testkit::servers::Ensemble;
/// let ensemble = Ensemble::start()?;
/// let leader = ensemble.leader()?;
/// ensemble.servers()[leader].kill()?;
/// ensemble.wait_serving()?;
/// assert_ne!(ensemble.leader()?, leader);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// The ports on which the servers talk to each other.
    _ports: Vec<Port>,
}

impl Ensemble {
    /// Starts three servers, and waits until all are ready.
    pub fn start() -> Result<Self> {
        Self::start_with(ZooKeeper::with())
    }

    /// Starts three servers with the same options.
    pub fn start_with(setup: ZooKeeperBuilder) -> Result<Self> {
        Self::launch(setup, &[])
    }

    /// Starts three servers with the same options, each on its own host: the first three of these.
    ///
    /// ```
    /// use clinch_testkit::servers::{Ensemble, Network, ZooKeeper};
    /// # if Network::check().is_err() { return Ok(()) }
    /// let network = Network::start(3)?;
    /// let ensemble = Ensemble::start_across(ZooKeeper::with(), network.hosts())?;
    /// let old = ensemble.leader()?;
    /// network.cut(network.host(old)?)?;
    /// assert_ne!(ensemble.wait_for_new_leader(old)?, old);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_across(setup: ZooKeeperBuilder, hosts: &[Host]) -> Result<Self> {
        match hosts.len() < 3 {
            true => Err(Error::invalid("each server needs a host")),
            false => Self::launch(setup, hosts),
        }
    }

    fn launch(setup: ZooKeeperBuilder, hosts: &[Host]) -> Result<Self> {
        let mut ports = Vec::new();
        let mut setup = setup;
        for id in 1..=3_usize {
            let (quorum, election) = (Port::reserve()?, Port::reserve()?);
            let host = address(hosts.get(id - 1));
            let ends = format!("{host}:{}:{}", quorum.number(), election.number());
            setup = setup.config(&format!("server.{id}"), &ends);
            ports.extend([quorum, election]);
        }
        let mut servers = Vec::new();
        for id in 1..=3 {
            let mut member = setup.clone().member(id);
            if let Some(host) = hosts.get(id - 1) {
                member = member.on_host(host);
            }
            servers.push(member.launch(Port::reserve()?)?);
        }
        for server in &servers {
            server.wait_ready()?;
        }
        Ok(Self {
            servers,
            _ports: ports,
        })
    }

    /// All servers.
    pub fn servers(&self) -> &[ZooKeeper] {
        &self.servers
    }

    /// `zookeeper://127.0.0.1:A,127.0.0.1:B,127.0.0.1:C`.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .servers
            .iter()
            .map(|server| server.socket_address().to_string())
            .collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    /// The index of the leader.
    pub fn leader(&self) -> Result<usize> {
        self.find("no server leads", |_, mode| mode == "leader")
    }

    /// Waits until a server other than `old` leads; `old` may still report that it leads.
    pub fn wait_for_new_leader(&self, old: usize) -> Result<usize> {
        self.find("no other server leads", |index, mode| {
            index != old && mode == "leader"
        })
    }

    /// The index of a server that follows.
    pub fn follower(&self) -> Result<usize> {
        self.find("no server follows", |_, mode| mode == "follower")
    }

    /// The first server whose index and mode fit; waits for it.
    fn find(&self, failure: &str, fits: impl Fn(usize, &str) -> bool) -> Result<usize> {
        let found = until_some(|| {
            let mut servers = self.servers.iter().enumerate();
            let found = servers.find(|(index, server)| {
                let mode = server.mode();
                mode.is_some_and(|mode| fits(*index, &mode))
            });
            found.map(|(index, _)| index)
        });
        found.ok_or_else(|| Error::new(ErrorKind::Unreachable, failure))
    }

    /// Waits until a majority serves again.
    pub fn wait_serving(&self) -> Result<()> {
        let serving = until(|| {
            let serves = |server: &&ZooKeeper| server.mode().is_some();
            self.servers.iter().filter(serves).count() >= 2
        });
        match serving {
            true => Ok(()),
            false => Err(self.servers.first().map_or_else(
                || Error::new(ErrorKind::Unreachable, "there are no servers"),
                |server| server.process().failure("the ensemble does not serve"),
            )),
        }
    }
}
