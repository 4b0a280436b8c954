//! What the wrong locks run on.

use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{Folder, MariaDb, Redis, ZooKeeper};

use crate::check::Property;
use crate::lab::{Engine, EngineFault, fault};

/// A server that is left alone.
pub(super) fn redis() -> Result<Box<dyn Engine>> {
    Ok(Box::new(Server {
        redis: Redis::start()?,
        forgets: false,
    }))
}

/// A server that is killed and keeps nothing.
pub(super) fn forgetful_redis() -> Result<Box<dyn Engine>> {
    Ok(Box::new(Server {
        redis: Redis::start()?,
        forgets: true,
    }))
}

/// A file.
pub(super) fn file() -> Result<Box<dyn Engine>> {
    Ok(Box::new(File(Folder::new("verify-wrong")?)))
}

/// A server with this table, whose connections an administrator ends now and then.
pub(super) fn mariadb(table: &str) -> Result<Box<dyn Engine>> {
    let mariadb = MariaDb::start()?;
    mariadb.sql(table)?;
    Ok(Box::new(Database(mariadb)))
}

/// A server that is left alone.
pub(super) fn zookeeper() -> Result<Box<dyn Engine>> {
    Ok(Box::new(Coordination(ZooKeeper::start()?)))
}

struct Server {
    redis: Redis,
    forgets: bool,
}

impl Engine for Server {
    fn url(&self) -> String {
        self.redis.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        if self.forgets {
            vec![fault(
                "server killed, started without data",
                &[Property::Exclusion],
            )]
        } else {
            Vec::new()
        }
    }

    fn begin(&mut self, _fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        self.redis.kill().map(|()| None)
    }

    fn end(&mut self, _fault: usize) -> Result<()> {
        self.redis.start_empty()
    }

    fn version(&self) -> String {
        let info = self.redis.info("server").unwrap_or_default();
        format!(
            "Redis {}",
            info.get("redis_version").map_or("", String::as_str)
        )
    }
}

struct File(Folder);

impl Engine for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("wrong.db").display())
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }
}

struct Database(MariaDb);

impl Engine for Database {
    fn url(&self) -> String {
        self.0.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        vec![fault("connections killed at the server", &[])]
    }

    fn begin(&mut self, _fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        self.0.kill_connections().map(|_| None)
    }

    fn version(&self) -> String {
        let version = self.0.sql("SELECT VERSION()");
        format!("MariaDB {}", version.unwrap_or_default())
    }
}

struct Coordination(ZooKeeper);

impl Engine for Coordination {
    fn url(&self) -> String {
        self.0.url()
    }

    fn version(&self) -> String {
        let counters = self.0.counters().unwrap_or_default();
        let version = counters.get("zk_version").map_or("", String::as_str);
        format!(
            "ZooKeeper {}",
            version.split('-').next().unwrap_or_default()
        )
    }
}
