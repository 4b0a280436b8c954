//! Three ZooKeeper servers that elect a leader.

use clinch_core::{Error, ErrorKind, Result};

use super::network::address;
use super::{Host, Port, ZooKeeper, ZooKeeperBuilder, until};

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
    /// Those on which the servers talk with each other.
    _ports: Vec<Port>,
}

impl Ensemble {
    /// Starts three servers, and waits until all serve.
    pub fn start() -> Result<Self> {
        Self::start_with(ZooKeeper::with())
    }

    /// Starts three servers with the same options.
    pub fn start_with(setup: ZooKeeperBuilder) -> Result<Self> {
        Self::launch(setup, &[])
    }

    /// Starts three servers with the same options, each on a host of its own: the first three of
    /// these.
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
            let place = format!("{host}:{}:{}", quorum.number(), election.number());
            setup = setup.config(&format!("server.{id}"), &place);
            ports.extend([quorum, election]);
        }
        let mut servers = Vec::new();
        for id in 1..=3 {
            let mut member = setup.clone().member(id);
            if let Some(host) = hosts.get(id - 1) {
                member = member.on_host(host);
            }
            servers.push(member.start_on(Port::reserve()?)?);
        }
        for server in &servers {
            server.wait_ready()?;
        }
        Ok(Self {
            servers,
            _ports: ports,
        })
    }

    /// All three.
    pub fn servers(&self) -> &[ZooKeeper] {
        &self.servers
    }

    /// `zookeeper://127.0.0.1:A,127.0.0.1:B,127.0.0.1:C`.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .servers
            .iter()
            .map(|server| format!("{}:{}", server.address(), server.port()))
            .collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    /// The place of the leader among the servers.
    pub fn leader(&self) -> Result<usize> {
        let mut leader = None;
        let found = until(|| {
            let leads = |server: &ZooKeeper| server.mode().as_deref() == Some("leader");
            leader = self.servers.iter().position(leads);
            leader.is_some()
        });
        match (found, leader) {
            (true, Some(leader)) => Ok(leader),
            _ => Err(Error::new(ErrorKind::Unreachable, "no server leads")),
        }
    }

    /// The place of a leader that is another server than this one, whatever that one still believes.
    pub fn wait_for_new_leader(&self, old: usize) -> Result<usize> {
        let mut new = None;
        until(|| {
            let mut others = self.servers.iter().enumerate().filter(|(i, _)| *i != old);
            let leads = |server: &ZooKeeper| server.mode().as_deref() == Some("leader");
            new = others.find(|(_, server)| leads(server)).map(|(i, _)| i);
            new.is_some()
        });
        new.ok_or_else(|| Error::new(ErrorKind::Unreachable, "no other server leads"))
    }

    /// The place of some server that follows.
    pub fn follower(&self) -> Result<usize> {
        let mut follower = None;
        let follows = |server: &ZooKeeper| server.mode().as_deref() == Some("follower");
        until(|| {
            follower = self.servers.iter().position(follows);
            follower.is_some()
        });
        follower.ok_or_else(|| Error::new(ErrorKind::Unreachable, "no server follows"))
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
