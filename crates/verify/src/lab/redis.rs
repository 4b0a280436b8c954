//! One Redis server that writes every step to its disk, with a clock that can be stepped.

use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{Redis as Server, Step};

use super::{Engine, EngineFault};
use crate::check::Property;

/// A server that forgets its holds cannot exclude, and knows no queue and no request of before.
const FORGETS: &[Property] = &[Property::Exclusion, Property::Fifo, Property::Idempotence];
/// Redis ends leases by its wall clock.
const STEPS: &[Property] = &[
    Property::Exclusion,
    Property::Fifo,
    Property::Recovery,
    Property::Stuck,
];

const KILL: usize = 0;
const PAUSE: usize = 1;
const EMPTY: usize = 2;
const FORWARD: usize = 3;

const FAULTS: [EngineFault; 4] = [
    EngineFault {
        name: "server killed, started with its data",
        excuses: &[],
    },
    EngineFault {
        name: "server paused",
        excuses: &[],
    },
    EngineFault {
        name: "server killed, started without data",
        excuses: FORGETS,
    },
    EngineFault {
        name: "server clock forward and back",
        excuses: STEPS,
    },
];

pub(super) struct Redis {
    server: Server,
    stepped: Duration,
    /// Whether the clock has gone back: after that, tokens are promised only as long as data is kept.
    went_back: bool,
}

impl Redis {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            server: Server::with().append_only("always").clock_shim().start()?,
            stepped: Duration::ZERO,
            went_back: false,
        })
    }
}

impl Engine for Redis {
    fn url(&self) -> String {
        self.server.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.to_vec()
    }

    fn begin(&mut self, fault: usize, span: Duration) -> Result<Option<EngineFault>> {
        match fault {
            KILL => self.server.kill()?,
            PAUSE => self.server.pause()?,
            EMPTY => self.server.kill()?,
            FORWARD => {
                self.server.step_clock(span, Step::Forward)?;
                self.stepped = span;
            }
            _ => {}
        }
        let replaced = fault == EMPTY && self.went_back;
        Ok(FAULTS.first().copied().filter(|_| replaced))
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        match fault {
            KILL => self.server.start_again(),
            PAUSE => self.server.resume(),
            EMPTY if self.went_back => self.server.start_again(),
            EMPTY => self.server.start_empty(),
            FORWARD => {
                self.went_back = true;
                self.server.step_clock(self.stepped, Step::Back)
            }
            _ => Ok(()),
        }
    }

    fn version(&self) -> String {
        let info = self.server.info("server").unwrap_or_default();
        let version = info.get("redis_version").map_or("", String::as_str);
        format!("Redis {version}")
    }
}
