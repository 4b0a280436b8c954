//! Three independent Redis servers, of which two must agree, with clocks that can be stepped.
//!
//! In strict mode, in which a server that lost its data takes no part until every hold from before is
//! over: so exclusion is promised, and checked without an excuse, when one of them starts empty.

use std::time::Duration;

use clinch::{BootTime, Clock, Error, ErrorKind, Result};
use clinch_testkit::servers::{Redis as Server, Step};

use super::redis::{lasting, version};
use super::{Engine, EngineFault, fault};
use crate::check::Property;
use crate::history::Renewals;

const SERVERS: usize = 3;

/// A hold that counts on a server whose clock is set forward ends there too early.
const STEPS: &[Property] = &[Property::Exclusion, Property::FalseLoss];

/// A hold that was granted while one server took no part is at two only, and one of these forgets it.
const FORGOTTEN: &[Property] = &[Property::FalseLoss];

const KILL: usize = 0;
const PAUSE: usize = 1;
const EMPTY: usize = 2;
const FORWARD: usize = 3;

/// Two of three renew what they both have.
pub(super) const FAULTS: [EngineFault; 4] = [
    fault("one of three servers killed, started with its data", &[])
        .but_renewals(Renewals::OfWholeHolds),
    fault("one of three servers paused", &[]).but_renewals(Renewals::OfWholeHolds),
    fault(
        "one of three servers killed, started without data",
        FORGOTTEN,
    ),
    fault("clock of one of three servers forward and back", STEPS),
];

pub(super) struct Quorum {
    servers: Vec<Server>,
    /// The server that is disturbed, by its number; each fault takes the next one.
    victim: usize,
    stepped: Duration,
    /// Until when a clock is behind one that it showed before: so long, tokens are promised only if data
    /// is kept.
    behind_until: BootTime,
    /// Whether a server is started with its data, where it was to lose them.
    spared: bool,
}

impl Quorum {
    pub(super) fn start() -> Result<Self> {
        let start = |_| lasting(Server::with()).clock_shim().start();
        let servers: Result<_> = (0..SERVERS).map(start).collect();
        Ok(Self {
            servers: servers?,
            victim: 0,
            stepped: Duration::ZERO,
            behind_until: BootTime::default(),
            spared: false,
        })
    }

    fn victim(&self) -> Result<&Server> {
        let server = self.servers.get(self.victim);
        server.ok_or_else(|| Error::new(ErrorKind::Internal, "there is no such server"))
    }
}

impl Engine for Quorum {
    fn url(&self) -> String {
        let hosts = self.servers.iter();
        let hosts: Vec<_> = hosts.map(|s| format!("127.0.0.1:{}", s.port())).collect();
        // Longer than the longest lease and lock-delay of the workloads.
        let strict = "durability=strict&longest=5s";
        format!("redis+quorum://{}?{strict}", hosts.join(","))
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.to_vec()
    }

    fn begin(&mut self, fault: usize, span: Duration) -> Result<Option<EngineFault>> {
        self.victim = (self.victim + 1) % SERVERS;
        let server = self.victim()?;
        match fault {
            KILL | EMPTY => server.kill()?,
            PAUSE => server.pause()?,
            FORWARD => server.step_clock(span, Step::Forward)?,
            _ => {}
        }
        self.stepped = span;
        self.spared = Clock::boot().now() <= self.behind_until;
        let replaced = fault == EMPTY && self.spared;
        Ok(FAULTS.first().copied().filter(|_| replaced))
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        let server = self.victim()?;
        match fault {
            PAUSE => server.resume(),
            EMPTY if !self.spared => server.start_empty(),
            KILL | EMPTY => server.start_again(),
            FORWARD => {
                server.step_clock(self.stepped, Step::Back)?;
                self.behind_until = Clock::boot().now() + self.stepped;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn version(&self) -> String {
        let version = self.victim().map(version).unwrap_or_default();
        format!("{version}, 3 servers, a majority, strict")
    }
}
