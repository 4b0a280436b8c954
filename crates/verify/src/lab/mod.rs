//! Engines of our own, whose servers are disturbed as well. Another engine is one more file here.

mod disk;
mod etcd;
mod mysql;
mod outage;
mod partition;
mod redis;
mod redis_cluster;
mod redis_quorum;
mod redis_sentinel;
mod sqlite;
mod stepped;
#[cfg(test)]
mod table;
mod zookeeper;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clinch::{Error, Result};

use crate::check::Property;
use crate::history::Renewals;

/// An engine that a run starts for itself.
///
/// ```
/// use clinch_verify::Lab;
/// assert_eq!("sqlite".parse::<Lab>()?, Lab::Sqlite);
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lab {
    /// The embedded store, in a folder of its own.
    Sqlite,
    /// One Redis server.
    Redis,
    /// A Redis master, two replicas and three sentinels.
    RedisSentinel,
    /// A Redis cluster of three masters with a replica each.
    RedisCluster,
    /// Three independent Redis servers, of which two must agree.
    RedisQuorum,
    /// One MariaDB server.
    Mysql,
    /// Three etcd members.
    Etcd,
    /// Three ZooKeeper servers.
    ZooKeeper,
}

impl Lab {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Sqlite,
        Self::Redis,
        Self::RedisSentinel,
        Self::RedisCluster,
        Self::RedisQuorum,
        Self::Mysql,
        Self::Etcd,
        Self::ZooKeeper,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::RedisSentinel => "redis-sentinel",
            Self::RedisCluster => "redis-cluster",
            Self::RedisQuorum => "redis-quorum",
            Self::Mysql => "mysql",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
        }
    }

    pub(crate) fn start(self) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Self::Sqlite => Box::new(sqlite::Sqlite::start()?),
            Self::Redis => Box::new(redis::Redis::start()?),
            Self::RedisSentinel => Box::new(redis_sentinel::Sentinel::start()?),
            Self::RedisCluster => Box::new(redis_cluster::Cluster::start()?),
            Self::RedisQuorum => Box::new(redis_quorum::Quorum::start()?),
            Self::Mysql => Box::new(mysql::Mysql::start()?),
            Self::Etcd => Box::new(etcd::Etcd::start()?),
            Self::ZooKeeper => Box::new(zookeeper::ZooKeeper::start()?),
        })
    }
}

impl FromStr for Lab {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|lab| lab.as_str() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("no lab is called {text:?}"))
                .with_advice(format!("there are {names}"))
        })
    }
}

/// Something that can be done to an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineFault {
    pub(crate) name: &'static str,
    /// What the store does not promise under it.
    pub(crate) excuses: &'static [Property],
    /// What it means for renewals.
    pub(crate) renewals: Renewals,
}

pub(crate) const fn fault(name: &'static str, excuses: &'static [Property]) -> EngineFault {
    EngineFault {
        name,
        excuses,
        renewals: Renewals::Delayed,
    }
}

impl EngineFault {
    /// The same, under which renewals go on.
    const fn but_renewals(self, renewals: Renewals) -> Self {
        Self { renewals, ..self }
    }
}

/// A fault that another one brought about, and the slots of a cluster that it was done to.
pub(crate) type Beside = (EngineFault, Vec<(u16, u16)>);

/// What came of a fault.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aftermath {
    /// Something else happened than was planned.
    pub(crate) instead: Option<EngineFault>,
    /// The slots of a cluster that it was done to, if not all.
    pub(crate) slots: Option<Vec<(u16, u16)>>,
    /// When that which it excuses had happened, if it was before its end.
    pub(crate) excused_until: Option<u64>,
    /// What else it was, at the same time.
    pub(crate) beside: Option<Beside>,
}

/// An engine that runs, and can be disturbed. Calls block for a bounded time.
pub(crate) trait Engine: Send {
    /// Where it is.
    fn url(&self) -> String;

    /// What can be done to it.
    fn faults(&self) -> Vec<EngineFault> {
        Vec::new()
    }

    /// Begins the fault with this number; what was done, if that was something else.
    fn begin(&mut self, _fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        Ok(None)
    }

    /// Ends it.
    fn end(&mut self, _fault: usize) -> Result<()> {
        Ok(())
    }

    /// What came of the fault that has just ended.
    fn aftermath(&mut self) -> Aftermath {
        Aftermath::default()
    }

    /// Every server that clients may be sent to, where its address is not all in the URL.
    fn servers(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// The servers that are cut off from the others just now, together with some clients.
    fn aside(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// The file of an embedded store.
    fn file(&self) -> Option<PathBuf> {
        None
    }

    /// What it is, with its version.
    fn version(&self) -> String;

    /// What cannot be done to it on this machine, and why.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }
}
