//! A Redis master with two replicas, watched by three sentinels.
//!
//! A grant counts when both replicas have it (`wait=2`): only so is exclusion promised across a
//! failover, and checked without an excuse. Places in the queue are not waited for.

use std::time::Duration;

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::{Redis as Server, Sentinels};

use super::redis::{lasting, version};
use super::{Engine, EngineFault, fault};
use crate::check::Property;

/// The new master may not know the last places in a queue.
const FORGETS_PLACES: &[Property] = &[Property::Fifo];

const KILL: usize = 0;
const ASK: usize = 1;
const KILL_REPLICA: usize = 2;
const PAUSE_REPLICA: usize = 3;
const RESTART_SENTINEL: usize = 4;
const PAUSE: usize = 5;

const FAULTS: [EngineFault; 6] = [
    fault("master killed, a replica takes over", FORGETS_PLACES),
    fault("failover asked for", FORGETS_PLACES),
    fault("replica killed, started again", &[]),
    fault("replica paused", &[]),
    fault("sentinel restarted", &[]),
    fault(
        "master paused until a replica has taken over",
        FORGETS_PLACES,
    ),
];

pub(super) struct Sentinel {
    all: Sentinels,
    /// The server that is disturbed, by its number.
    victim: usize,
    /// How many faults there were: each takes the next replica or sentinel.
    turn: usize,
}

impl Sentinel {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            // A master that is back before a failover must know what it knew.
            all: Sentinels::start_with(lasting)?,
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

impl Engine for Sentinel {
    fn url(&self) -> String {
        format!("{}?wait=2", self.all.url())
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.to_vec()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        self.turn += 1;
        match fault {
            ASK => self.all.failover().map(|_| ())?,
            RESTART_SENTINEL => self.all.restart_sentinel(self.turn % 3)?,
            _ => {
                self.choose(matches!(fault, KILL | PAUSE))?;
                match fault {
                    KILL | KILL_REPLICA => self.server()?.kill()?,
                    _ => self.server()?.pause()?,
                }
            }
        }
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
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
