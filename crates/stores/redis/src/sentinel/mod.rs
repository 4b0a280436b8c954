//! A master with replicas, followed through failovers by sentinels.

mod sentinels;
mod watch;

pub(crate) use sentinels::Sentinels;
pub(crate) use watch::start;
