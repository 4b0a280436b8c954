//! An ensemble of three ZooKeeper servers.

use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{Ensemble, ZooKeeper as Server};

use super::outage::{Outage, Whom, processes};
use super::{Engine, EngineFault, fault};
use crate::check::Property;

/// A holder whose session somebody closes learns of it at its next renewal, and a waiter loses its
/// place.
const CLOSED: &[Property] = &[Property::Exclusion, Property::Fifo];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outage(Outage, Whom),
    /// A server loses its disk; the others have what it had.
    Empty,
    /// One session in three.
    CloseSessions,
}

const FAULTS: [(Kind, EngineFault); 9] = [
    (
        Kind::Outage(Outage::Killed, Whom::Leader),
        fault("leader killed, started with its data", &[]),
    ),
    (
        Kind::Outage(Outage::Paused, Whom::Leader),
        fault("leader paused", &[]),
    ),
    (
        Kind::Outage(Outage::Killed, Whom::Follower),
        fault("follower killed, started with its data", &[]),
    ),
    (
        Kind::Outage(Outage::Paused, Whom::Follower),
        fault("follower paused", &[]),
    ),
    (
        Kind::Outage(Outage::Killed, Whom::Majority),
        fault("two servers killed, started with their data", &[]),
    ),
    (
        Kind::Outage(Outage::Killed, Whom::All),
        fault("all servers killed, started with their data", &[]),
    ),
    (
        Kind::Outage(Outage::Paused, Whom::All),
        fault("all servers paused", &[]),
    ),
    (
        Kind::Empty,
        fault("follower killed, started without data", &[]),
    ),
    (
        Kind::CloseSessions,
        fault("sessions closed from outside", CLOSED),
    ),
];

pub(super) struct ZooKeeper {
    ensemble: Ensemble,
    /// The places of those that are away.
    away: Vec<usize>,
}

impl ZooKeeper {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            ensemble: Ensemble::start()?,
            away: Vec::new(),
        })
    }

    fn choose(&mut self, whom: Whom) -> Result<()> {
        self.away = whom.places(self.ensemble.leader()?, self.ensemble.servers().len());
        Ok(())
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

impl Engine for ZooKeeper {
    fn url(&self) -> String {
        // The ticks of the test kit's servers.
        format!("{}?tick=200ms", self.ensemble.url())
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.iter().map(|(_, fault)| *fault).collect()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        let Some((kind, _)) = FAULTS.get(fault) else {
            return Ok(None);
        };
        let (outage, whom) = match *kind {
            Kind::Outage(outage, whom) => (outage, whom),
            Kind::Empty => (Outage::Killed, Whom::Follower),
            Kind::CloseSessions => {
                self.close_sessions()?;
                return Ok(None);
            }
        };
        self.choose(whom)?;
        let servers = self.ensemble.servers();
        outage.begin(&processes(servers, &self.away, Server::process)?)?;
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        let Some((kind, _)) = FAULTS.get(fault) else {
            return Ok(());
        };
        let servers = self.ensemble.servers();
        match *kind {
            Kind::Outage(outage, _) => {
                outage.end(&processes(servers, &self.away, Server::process)?)?;
            }
            Kind::Empty => {
                let mut gone = self.away.iter().filter_map(|place| servers.get(*place));
                gone.try_for_each(Server::restart_empty)?;
            }
            Kind::CloseSessions => {}
        }
        servers.iter().try_for_each(Server::wait_ready)
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
}
