//! A Redis master with two replicas, watched by three sentinels.
//!
//! A grant counts when both replicas have it (`wait=2`): only so is exclusion promised across a
//! failover, and checked without an excuse. Places in the queue are not waited for.

use std::net::SocketAddr;
use std::time::Duration;

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::{Network, Redis as Server, Sentinels};

use super::partition::{self, From};

use super::redis::{lasting, version};
use super::{Aftermath, Engine, EngineFault, fault};
use crate::check::Property;
use crate::history::now;

/// The new master may not know the last places in a queue.
const FORGETS_PLACES: &[Property] = &[Property::Fifo];

const KILL: usize = 0;
const ASK: usize = 1;
const KILL_REPLICA: usize = 2;
const PAUSE_REPLICA: usize = 3;
const RESTART_SENTINEL: usize = 4;
const PAUSE: usize = 5;
const SPLIT: usize = 6;

/// The last one needs hosts.
pub(super) const FAULTS: [EngineFault; 7] = [
    fault("master killed, a replica takes over", FORGETS_PLACES),
    fault("failover asked for", FORGETS_PLACES),
    fault("replica killed, started again", &[]),
    fault("replica paused", &[]),
    fault("sentinel restarted", &[]),
    fault(
        "master paused until a replica has taken over",
        FORGETS_PLACES,
    ),
    fault(
        "network split: master, a replica, a sentinel and half of the clients on one side",
        FORGETS_PLACES,
    ),
];

pub(super) struct Sentinel {
    all: Sentinels,
    /// Where servers have hosts of their own.
    network: Option<Network>,
    /// The places of the servers and sentinels that are cut off together.
    aside: Vec<usize>,
    excused_until: Option<u64>,
    /// The server that is disturbed, by its number.
    victim: usize,
    /// How many faults there were: each takes the next replica or sentinel.
    turn: usize,
}

impl Sentinel {
    pub(super) fn start() -> Result<Self> {
        let network = partition::network(6)?;
        let hosts = network.as_ref().map_or(&[][..], Network::hosts);
        Ok(Self {
            // A master that is back before a failover must know what it knew.
            all: Sentinels::start_across(hosts, lasting)?,
            network,
            aside: Vec::new(),
            excused_until: None,
            victim: 0,
            turn: 0,
        })
    }

    fn server(&self) -> Result<&Server> {
        let server = self.all.servers().get(self.victim);
        server.ok_or_else(|| Error::new(ErrorKind::Internal, "there is no such server"))
    }

    /// Chooses the master, or one of its replicas.
    fn choose(&mut self, master: bool) -> Result<()> {
        let port = self.all.master()?.port();
        let servers = self.all.servers().iter().enumerate();
        let fitting = servers.filter(|(_, server)| (server.port() == port) == master);
        let fitting: Vec<_> = fitting.map(|(number, _)| number).collect();
        let chosen = fitting.get(self.turn % fitting.len().max(1));
        self.victim = chosen.copied().unwrap_or(0);
        Ok(())
    }
}

impl Sentinel {
    /// The master, one of its replicas and the first sentinel on one side; the other replica and two
    /// sentinels, which are enough for a failover, on the other.
    fn split(&mut self) -> Result<()> {
        self.choose(true)?;
        self.aside = vec![self.victim, (self.victim + 1) % 3, 3];
        match &self.network {
            Some(network) => partition::cut(network, &self.aside, From::Servers),
            None => Ok(()),
        }
    }

    fn heal(&mut self) -> Result<()> {
        let old = self.server()?.port();
        let taken = self.all.wait_for_new_master_of(&[1, 2], old).map(drop);
        self.aside.clear();
        self.network.as_ref().map_or(Ok(()), Network::heal)?;
        taken?;
        self.all.wait_for_new_master(old).map(drop)
    }
}

impl Engine for Sentinel {
    fn url(&self) -> String {
        format!("{}?wait=2", self.all.url())
    }

    fn faults(&self) -> Vec<EngineFault> {
        let mut faults = FAULTS.to_vec();
        if self.network.is_none() {
            faults.truncate(SPLIT);
        }
        faults
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let all = self.all.servers().iter().chain(self.all.sentinels());
        all.map(|s| (s.address(), s.port()).into()).collect()
    }

    fn aside(&self) -> Vec<SocketAddr> {
        let all = self.servers().into_iter().enumerate();
        let aside = all.filter(|(place, _)| self.aside.contains(place));
        aside.map(|(_, server)| server).collect()
    }

    fn aftermath(&mut self) -> Aftermath {
        Aftermath {
            excused_until: self.excused_until,
            ..Aftermath::default()
        }
    }

    fn missing(&self) -> Vec<String> {
        partition::missing()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        self.turn += 1;
        match fault {
            ASK => self.all.failover().map(|_| ())?,
            RESTART_SENTINEL => self.all.restart_sentinel(self.turn % 3)?,
            SPLIT => self.split()?,
            _ => {
                self.choose(matches!(fault, KILL | PAUSE))?;
                match fault {
                    KILL | KILL_REPLICA => self.server()?.kill()?,
                    _ => self.server()?.pause()?,
                }
            }
        }
        // What the old master had not passed on is forgotten at this moment, not later. One that is cut
        // off goes on giving places that nobody else will know.
        self.excused_until = (fault != SPLIT).then(now);
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        if fault == SPLIT {
            self.heal()?;
            return self.all.wait_synced();
        }
        let server = self.server()?;
        if matches!(fault, KILL | PAUSE) {
            // It is back when another one has its place, so that it has to give way.
            self.all.wait_for_new_master(server.port())?;
        }
        match fault {
            KILL | KILL_REPLICA => server.start_again()?,
            PAUSE | PAUSE_REPLICA => server.resume()?,
            _ => {}
        }
        self.all.wait_synced()
    }

    fn version(&self) -> String {
        let version = self.server().map(version).unwrap_or_default();
        format!("{version}, 1 master, 2 replicas, 3 sentinels, wait=2")
    }
}
