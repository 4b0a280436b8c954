//! What is done to workers and connections: names, and what comes of it. The table in `docs/verification.md`
//! says the same, and a test compares them.

use super::LinkFault;
use crate::check::Property;
use crate::history::{self, Fault, Renewals};
use crate::lab::EngineFault;

/// A kind of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// It delays nobody.
    pub(crate) harmless: bool,
    pub(crate) renewals: Renewals,
    pub(crate) excuses: &'static [Property],
}

const fn kind(name: &'static str) -> Kind {
    Kind {
        name,
        harmless: false,
        renewals: Renewals::Delayed,
        excuses: &[],
    }
}

const fn harmless(name: &'static str) -> Kind {
    Kind {
        harmless: true,
        ..kind(name)
    }
}

pub(crate) const KILLED: Kind = kind("worker killed");
pub(crate) const PAUSED: Kind = kind("worker paused shortly");
pub(crate) const PAUSED_LONG: Kind = kind("worker paused for longer than a lease");
pub(crate) const BLOCKED: Kind = kind("worker's runtime blocked");
/// Until the holder's next renewal two may believe to have the lock: that is what the operator asks for.
pub(crate) const BROKEN: Kind = Kind {
    excuses: &[Property::Exclusion, Property::FalseLoss],
    ..harmless("hold broken by an operator")
};
/// Closing ends what is held, and says so; it delays nothing else.
pub(crate) const CLOSED: Kind = harmless("client closed under load");
pub(crate) const FORKED: Kind = harmless(history::FORKED);
pub(crate) const READ: Kind = harmless("file read by plain SQLite");
pub(crate) const DELIVERED: Kind = harmless("kept requests delivered");
pub(crate) const FAST: Kind = harmless(history::FAST);
pub(crate) const SLOW: Kind = harmless(history::SLOW);
pub(crate) const OTHER_BOOT: Kind = harmless(history::OTHER_BOOT);

/// What is done to connections to a store of this scheme.
pub(crate) fn of_link(fault: LinkFault, scheme: &str) -> Kind {
    // A renewal that gets no answer gives its connection up after a quarter of the lease, and there is time for
    // another one (`docs/stores/redis.md`). Other stores do not promise that for leases as short as here.
    let renewals = match fault {
        LinkFault::ReplySwallowed(..) if scheme == "redis" => Renewals::GoOn,
        _ => Renewals::Delayed,
    };
    Kind {
        renewals,
        ..kind(fault.name())
    }
}

impl Kind {
    /// One of them, from and until.
    pub(crate) fn fault(self, at: u64, until: u64) -> Fault {
        Fault {
            kind: self.name.to_owned(),
            at,
            until,
            harmless: self.harmless,
            renewals: self.renewals,
            excuses: self.excuses.to_vec(),
            ..Fault::default()
        }
    }
}

impl From<EngineFault> for Kind {
    fn from(fault: EngineFault) -> Self {
        Self {
            renewals: fault.renewals,
            excuses: fault.excuses,
            ..kind(fault.name)
        }
    }
}
