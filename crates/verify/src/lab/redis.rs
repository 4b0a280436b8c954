//! One Redis server that logs every step, with a clock that can be stepped.

use std::time::Duration;

use clinch::{BootTime, Clock, Result};
use clinch_testkit::servers::{Redis as Server, RedisBuilder, Step};

use super::{Engine, EngineFault, disk, fault};
use crate::check::Property;

/// A server that forgets its holds cannot exclude, and knows no queue and no request of before.
const FORGETS: &[Property] = &[
    Property::Exclusion,
    Property::Fifo,
    Property::Idempotence,
    Property::FalseLoss,
];
/// Redis ends leases by its wall clock.
const STEPS: &[Property] = &[
    Property::Exclusion,
    Property::Fifo,
    Property::Recovery,
    Property::Stuck,
    Property::FalseLoss,
];

const KILL: usize = 0;
const PAUSE: usize = 1;
const EMPTY: usize = 2;
const FORWARD: usize = 3;

const FULL: usize = 4;

/// The last one needs a small disk.
pub(super) const FAULTS: [EngineFault; 5] = [
    fault("server killed, started with its data", &[]),
    fault("server paused", &[]),
    fault("server killed, started without data", FORGETS),
    fault("server clock forward and back", STEPS),
    disk::FULL,
];

pub(super) struct Redis {
    server: Server,
    stepped: Duration,
    /// Until when the clock is behind one that it showed before: so long, tokens are promised only if data
    /// is kept.
    behind_until: BootTime,
    /// Whether the server is started with its data, where it was to lose them.
    spared: bool,
}

impl Redis {
    pub(super) fn start() -> Result<Self> {
        // The log is folded long before it fills the disk by itself.
        let setup = lasting(Server::with())
            .config("auto-aof-rewrite-min-size", "8mb")
            .clock_shim();
        // A small disk is in memory, where flushing costs nothing. And it has to be flushed: a server that
        // goes on after a write failed may leave a log that it cannot read again.
        let on_disk = |setup: RedisBuilder| setup.disk(64).append_only("always");
        Ok(Self {
            server: disk::on_a_small_one(setup, on_disk).start()?,
            stepped: Duration::ZERO,
            behind_until: BootTime::default(),
            spared: false,
        })
    }
}

impl Engine for Redis {
    fn url(&self) -> String {
        self.server.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        let mut faults = FAULTS.to_vec();
        if self.server.disk().is_none() {
            faults.truncate(FULL);
        }
        faults
    }

    fn begin(&mut self, fault: usize, span: Duration) -> Result<Option<EngineFault>> {
        match fault {
            KILL => self.server.kill()?,
            PAUSE => self.server.pause()?,
            EMPTY => {
                self.spared = Clock::boot().now() <= self.behind_until;
                self.server.kill()?;
            }
            FORWARD => {
                self.server.step_clock(span, Step::Forward)?;
                self.stepped = span;
            }
            FULL => disk::fill(self.server.disk())?,
            _ => {}
        }
        let replaced = fault == EMPTY && self.spared;
        Ok(FAULTS.first().copied().filter(|_| replaced))
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        match fault {
            KILL => self.server.start_again(),
            PAUSE => self.server.resume(),
            EMPTY if self.spared => self.server.start_again(),
            EMPTY => self.server.start_empty(),
            FORWARD => {
                self.server.step_clock(self.stepped, Step::Back)?;
                self.behind_until = Clock::boot().now() + self.stepped;
                Ok(())
            }
            FULL => {
                disk::free(self.server.disk())?;
                // It ends when it cannot write its log.
                match self.server.is_running() {
                    true => Ok(()),
                    false => self.server.start_again(),
                }
            }
            _ => Ok(()),
        }
    }

    fn version(&self) -> String {
        version(&self.server)
    }

    fn missing(&self) -> Vec<String> {
        disk::missing()
    }
}

/// A server that knows after a kill what it had said before. It writes every step to its log before it
/// answers; that the disk has it too matters when the machine dies, which does not happen here, and would
/// make the lab wait for the disk most of the time.
pub(super) fn lasting(server: RedisBuilder) -> RedisBuilder {
    server.append_only("no")
}

/// What a server says it is.
pub(super) fn version(server: &Server) -> String {
    let info = server.info("server").unwrap_or_default();
    let version = info.get("redis_version").map_or("", String::as_str);
    format!("Redis {version}")
}
