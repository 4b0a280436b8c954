//! An ensemble of three ZooKeeper servers.

use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{Ensemble, Network, ZooKeeper as Server};

use super::outage::{OF_THREE, Outage, Whom, processes};
use super::partition::{self, From};
use super::{Aftermath, Engine, EngineFault, disk, fault};
use crate::check::Property;
use crate::history::now;

/// A holder whose session somebody closes learns of it at its next renewal, and a waiter loses its
/// place.
const CLOSED: &[Property] = &[Property::Exclusion, Property::Fifo, Property::FalseLoss];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outage(Outage, Whom),
    /// A server loses its disk; the others have what it had.
    Empty,
    /// One session in three.
    CloseSessions,
    CutOff(Whom, From),
    FullDisk(Whom),
}

/// What is done besides the outages of every group of three. The last ones need hosts and small disks.
const OWN: [(Kind, EngineFault); 7] = [
    (
        Kind::Empty,
        fault("follower killed, started without data", &[]),
    ),
    (
        Kind::CloseSessions,
        fault("sessions closed from outside", CLOSED),
    ),
    (
        Kind::CutOff(Whom::Leader, From::Servers),
        fault("leader cut off from the others", &[]),
    ),
    (
        Kind::CutOff(Whom::Follower, From::Servers),
        fault("follower cut off from the others", &[]),
    ),
    (
        Kind::CutOff(Whom::Leader, From::Everybody),
        fault("leader cut off from everybody", &[]),
    ),
    (
        Kind::CutOff(Whom::Majority, From::Everybody),
        fault("two servers cut off from everybody", &[]),
    ),
    (
        Kind::FullDisk(Whom::Leader),
        fault("disk of the leader full", &[]),
    ),
];

impl Kind {
    fn needs_hosts(self) -> bool {
        matches!(self, Self::CutOff(..))
    }

    fn needs_disks(self) -> bool {
        matches!(self, Self::FullDisk(_))
    }
}

pub(super) struct ZooKeeper {
    ensemble: Ensemble,
    /// Where servers have hosts of their own.
    network: Option<Network>,
    /// What can be done here.
    faults: Vec<(Kind, EngineFault)>,
    /// The places of those that are away.
    away: Vec<usize>,
    /// When that which a fault excuses had happened.
    excused_until: Option<u64>,
}

impl ZooKeeper {
    pub(super) fn start() -> Result<Self> {
        let network = partition::network(3)?;
        let setup = disk::on_a_small_one(Server::with(), |setup| setup.disk(256));
        let ensemble = match &network {
            Some(network) => Ensemble::start_across(setup, network.hosts())?,
            None => Ensemble::start_with(setup)?,
        };
        let disks = ensemble.servers().iter().all(|s| s.disk().is_some());
        let mut faults = kinds();
        faults.retain(|(kind, _)| {
            (network.is_some() || !kind.needs_hosts()) && (disks || !kind.needs_disks())
        });
        Ok(Self {
            ensemble,
            network,
            faults,
            away: Vec::new(),
            excused_until: None,
        })
    }

    fn choose(&mut self, whom: Whom) -> Result<()> {
        self.away = whom.places(self.ensemble.leader()?, self.ensemble.servers().len());
        Ok(())
    }

    /// Those that are away.
    fn away(&self) -> impl Iterator<Item = &Server> {
        let servers = self.ensemble.servers();
        self.away.iter().filter_map(|place| servers.get(*place))
    }

    fn close_sessions(&self) -> Result<()> {
        let leader = self.ensemble.leader()?;
        for server in self.ensemble.servers().iter().skip(leader).take(1) {
            for id in server.owners()?.into_iter().step_by(3) {
                server.close_session(id)?;
            }
        }
        Ok(())
    }
}

/// All that can be done to it.
fn kinds() -> Vec<(Kind, EngineFault)> {
    let outages = OF_THREE.iter();
    let outages = outages.map(|(outage, whom, name)| {
        let kind = Kind::Outage(*outage, *whom);
        (kind, fault(name, &[]))
    });
    outages.chain(OWN).collect()
}

/// The same without how it is done.
#[cfg(test)]
pub(super) fn faults() -> Vec<EngineFault> {
    kinds().into_iter().map(|(_, fault)| fault).collect()
}

impl Engine for ZooKeeper {
    fn url(&self) -> String {
        // The ticks of the test kit's servers.
        format!("{}?tick=200ms", self.ensemble.url())
    }

    fn faults(&self) -> Vec<EngineFault> {
        self.faults.iter().map(|(_, fault)| *fault).collect()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        let Some((kind, _)) = self.faults.get(fault).copied() else {
            return Ok(None);
        };
        self.excused_until = None;
        let (outage, whom) = match kind {
            Kind::Outage(outage, whom) => (outage, whom),
            Kind::Empty => (Outage::Killed, Whom::Follower),
            Kind::CloseSessions => {
                self.close_sessions()?;
                self.excused_until = Some(now());
                return Ok(None);
            }
            Kind::CutOff(whom, from) => {
                self.choose(whom)?;
                if let Some(network) = &self.network {
                    partition::cut(network, &self.away, from)?;
                }
                return Ok(None);
            }
            Kind::FullDisk(whom) => {
                self.choose(whom)?;
                self.away()
                    .try_for_each(|server| disk::fill(server.disk()))?;
                return Ok(None);
            }
        };
        self.choose(whom)?;
        let servers = self.ensemble.servers();
        outage.begin(&processes(servers, &self.away, Server::process)?)?;
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        let Some((kind, _)) = self.faults.get(fault).copied() else {
            return Ok(());
        };
        let servers = self.ensemble.servers();
        match kind {
            Kind::Outage(outage, _) => {
                outage.end(&processes(servers, &self.away, Server::process)?)?;
            }
            Kind::Empty => {
                self.away().try_for_each(Server::restart_empty)?;
            }
            Kind::CloseSessions => {}
            Kind::CutOff(..) => self.network.as_ref().map_or(Ok(()), Network::heal)?,
            Kind::FullDisk(_) => self.away().try_for_each(|server| {
                disk::free(server.disk())?;
                // A server that cannot write its log ends.
                match server.is_running() {
                    true => Ok(()),
                    false => server.restart(),
                }
            })?,
        }
        servers.iter().try_for_each(Server::wait_ready)
    }

    fn aftermath(&mut self) -> Aftermath {
        Aftermath {
            excused_until: self.excused_until,
            ..Aftermath::default()
        }
    }

    fn version(&self) -> String {
        let first = self.ensemble.servers().first();
        let told = first.and_then(|server| server.word("srvr").ok());
        let told = told.unwrap_or_default();
        let line = told.lines().next().unwrap_or_default();
        let line = line.trim_start_matches("Zookeeper version: ");
        let version = line.split(['-', ',']).next().unwrap_or_default();
        format!("ZooKeeper {version}, three servers")
    }

    fn missing(&self) -> Vec<String> {
        [partition::missing(), disk::missing()].concat()
    }
}
