//! One MariaDB server that flushes every commit, with a clock that can be stepped, and strangers who
//! lock what is ours.

use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{MariaDb, Step, Stranger};

use super::outage::Outage;
use super::stepped::Stepped;
use super::{Engine, EngineFault, disk, fault};
use crate::check::Property;

/// A server that forgets its holds cannot exclude, and knows no queue and no request of before.
const FORGETS: &[Property] = &[
    Property::Exclusion,
    Property::Fifo,
    Property::Idempotence,
    Property::FalseLoss,
];
/// Leases end by the server's wall clock: set forward, they end early, those of waiters too.
const STEPS: &[Property] = &[Property::Exclusion, Property::Fifo, Property::FalseLoss];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outage(Outage),
    Empty,
    Clock(Step),
    /// Every connection is ended once.
    KillConnections,
    /// A session that keeps something.
    Stranger(&'static str),
    FullDisk,
}

/// The last one needs a small disk.
const FAULTS: [(Kind, EngineFault); 10] = [
    (
        Kind::Outage(Outage::Killed),
        fault("server killed, started with its data", &[]),
    ),
    (Kind::Outage(Outage::Paused), fault("server paused", &[])),
    (
        Kind::Empty,
        fault("server killed, started without data", FORGETS),
    ),
    (
        Kind::Clock(Step::Forward),
        fault("server clock forward and back", STEPS),
    ),
    (
        Kind::Clock(Step::Back),
        fault("server clock back and forward", STEPS),
    ),
    (
        Kind::KillConnections,
        fault("every connection ended with KILL", &[]),
    ),
    (
        Kind::Stranger("BEGIN; SELECT COUNT(*) FROM (SELECT name FROM clinch_names FOR UPDATE) n"),
        fault("every row locked by a stranger", &[]),
    ),
    (
        Kind::Stranger("FLUSH TABLES WITH READ LOCK"),
        fault("tables locked for a backup", &[]),
    ),
    (
        Kind::Stranger(
            "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT COUNT(*) FROM clinch_names",
        ),
        fault("long transaction that keeps old rows", &[]),
    ),
    (Kind::FullDisk, disk::FULL),
];

pub(super) struct Mysql {
    // Dropped in this order: whoever disturbs, then the server.
    stranger: Option<Stranger>,
    server: MariaDb,
    clock: Stepped,
    /// Whether the data is kept this time, although they were to go.
    keeps: bool,
}

impl Mysql {
    pub(super) fn start() -> Result<Self> {
        // Connections of clients that were killed or cut off stay for a while, and an operator wants one too.
        let setup = MariaDb::with()
            .clock_shim()
            .option("max-connections", "500");
        Ok(Self {
            stranger: None,
            server: disk::on_a_small_one(setup, |setup| setup.disk(96)).start()?,
            clock: Stepped::new(),
            keeps: false,
        })
    }

    /// The server comes back without data, and an operator makes the tables.
    fn start_empty(&self) -> Result<()> {
        self.server.start_empty()?;
        self.server.sql(&clinch::mysql::schema()).map(drop)
    }
}

/// All that can be done to it.
#[cfg(test)]
pub(super) fn faults() -> Vec<EngineFault> {
    FAULTS.iter().map(|(_, fault)| *fault).collect()
}

impl Engine for Mysql {
    fn url(&self) -> String {
        // Near the lease: the default of five seconds is made for leases of thirty.
        format!("{}?timeout=2s", self.server.url())
    }

    fn faults(&self) -> Vec<EngineFault> {
        let full = usize::from(self.server.disk().is_some());
        let faults = FAULTS.iter().take(FAULTS.len() - 1 + full);
        faults.map(|(_, fault)| *fault).collect()
    }

    fn begin(&mut self, fault: usize, span: Duration) -> Result<Option<EngineFault>> {
        let Some((kind, _)) = FAULTS.get(fault) else {
            return Ok(None);
        };
        match *kind {
            Kind::Outage(outage) => outage.begin(&[self.server.process()])?,
            Kind::Empty => {
                self.keeps = !self.clock.is_ahead();
                self.server.kill()?;
                if self.keeps {
                    return Ok(FAULTS.first().map(|(_, fault)| *fault));
                }
            }
            Kind::Clock(step) => {
                self.server.step_clock(span, step)?;
                self.clock.away(span);
                if step == Step::Back {
                    self.clock.behind(span);
                }
            }
            Kind::KillConnections => {
                self.server.kill_connections()?;
            }
            Kind::Stranger(words) => self.stranger = Some(self.server.stranger(words)?),
            Kind::FullDisk => disk::fill(self.server.disk())?,
        }
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        let Some((kind, _)) = FAULTS.get(fault) else {
            return Ok(());
        };
        match *kind {
            Kind::Outage(outage) => outage.end(&[self.server.process()])?,
            Kind::Empty if self.keeps => self.server.start_again()?,
            Kind::Empty => self.start_empty()?,
            Kind::Clock(Step::Forward) => {
                self.server.step_clock(self.clock.by(), Step::Back)?;
                self.clock.behind(self.clock.by());
            }
            Kind::Clock(Step::Back) => {
                self.server.step_clock(self.clock.by(), Step::Forward)?;
            }
            Kind::KillConnections => {}
            Kind::Stranger(_) => self.stranger = None,
            Kind::FullDisk => {
                disk::free(self.server.disk())?;
                if !self.server.is_running() {
                    self.server.start_again()?;
                }
            }
        }
        self.server.wait_ready()
    }

    fn version(&self) -> String {
        let version = self.server.sql("SELECT VERSION()").unwrap_or_default();
        format!("MariaDB {version}")
    }

    fn missing(&self) -> Vec<String> {
        disk::missing()
    }
}
