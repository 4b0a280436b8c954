//! The settings of a server, and whether locks can live there.

use std::collections::HashMap;

use clinch_core::{Error, ErrorKind, Result};
use mysql_async::Value;

use crate::connection::Pool;
use crate::sql::Sql;

/// The oldest servers that are accepted.
const OLDEST_MARIADB: (u32, u32) = (10, 6);
const OLDEST_MYSQL: (u32, u32) = (8, 0);
/// The settings that matter. One that the server does not have is not an error.
const SETTINGS: &str = "'version','version_comment','read_only','super_read_only','wsrep_on',\
    'group_replication_group_name','group_replication_single_primary_mode',\
    'innodb_flush_log_at_trx_commit','sync_binlog','log_bin','max_connections','wait_timeout',\
    'innodb_read_only'";

/// The settings of a server.
#[derive(Debug)]
pub(crate) struct Server {
    settings: HashMap<String, String>,
}

impl Server {
    /// Reads them.
    pub(crate) async fn read(pool: &Pool) -> Result<Self> {
        let sql = format!("SHOW VARIABLES WHERE Variable_name IN ({SETTINGS})");
        let reply = pool.query(&Sql::new(sql)).await;
        let rows = reply.map_err(|error| pool.error(error))?.into_rows();
        let pair = |row: Vec<Value>| {
            let mut values = row.into_iter();
            Some((text(values.next()?)?, text(values.next()?)?))
        };
        Ok(Self {
            settings: rows.into_iter().filter_map(pair).collect(),
        })
    }

    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// A number among the settings.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        matches!(self.setting(name), Some("ON" | "1"))
    }

    pub(crate) fn version(&self) -> &str {
        self.setting("version").unwrap_or("unknown")
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        self.version().contains("MariaDB")
    }

    /// Major and minor.
    fn number_of_version(&self) -> Option<(u32, u32)> {
        // Some servers prefix it with 5.5.5-, for old replicas.
        let text = self.version();
        let text = text.strip_prefix("5.5.5-").unwrap_or(text);
        let mut parts = text.split(['.', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Refuses servers on which locks would not be locks.
    pub(crate) fn check(&self, address: &str) -> Result<()> {
        let refused = |text: String, advice: &str| {
            let text = format!("{address}: {text}");
            Err(Error::new(ErrorKind::Unsupported, text).with_advice(advice))
        };
        let oldest = match self.is_mariadb() {
            true => OLDEST_MARIADB,
            false => OLDEST_MYSQL,
        };
        if self.version().contains("TiDB") {
            return refused(
                format!("{} is not MySQL", self.version()),
                "clinch supports MySQL and MariaDB",
            );
        }
        if self
            .number_of_version()
            .is_some_and(|version| version < oldest)
        {
            return refused(
                format!("{} is too old", self.version()),
                "clinch needs MySQL 8.0 or MariaDB 10.6, or newer",
            );
        }
        if ["read_only", "super_read_only", "innodb_read_only"]
            .iter()
            .any(|name| self.is_on(name))
        {
            return refused(
                "the server is read-only".to_owned(),
                "it is a replica, or will be one: give the primary's address",
            );
        }
        if self.is_on("wsrep_on") {
            return refused(
                "the server is a node of a Galera cluster".to_owned(),
                "nodes commit without having seen each other's last writes, and may lose committed \
                 ones, so a lock there is not reliable; use a server outside of it, or another \
                 store",
            );
        }
        let group = self.setting("group_replication_group_name");
        if group.is_some_and(|name| !name.is_empty())
            && !self.is_on("group_replication_single_primary_mode")
        {
            return refused(
                "the server is one of several primaries of a replication group".to_owned(),
                "two of them may grant the same lock: use single-primary mode",
            );
        }
        Ok(())
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}
