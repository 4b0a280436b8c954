//! The `INFO` of a server, and whether the server can keep locks.

use std::collections::HashMap;
use std::sync::Arc;

use clinch_core::{Error, ErrorKind, Result};
use redis::Value;

use crate::config::Config;

/// The oldest server whose scripts do what ours need.
pub(crate) const OLDEST: (u32, u32) = (6, 0);
/// The oldest server with sharded pub/sub.
pub(crate) const OLDEST_CLUSTER: (u32, u32) = (7, 0);

/// The `INFO` of a server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Its address.
    pub(crate) address: Arc<str>,
    /// The fields of its `INFO`.
    pub(crate) fields: HashMap<String, String>,
}

impl Server {
    /// Reads the reply to `INFO`.
    pub(crate) fn read(info: Value, address: &str) -> Self {
        let text = match info {
            Value::VerbatimString { text, .. } => text,
            Value::SimpleString(text) => text,
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        let fields = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
        Self {
            address: address.into(),
            fields: fields.collect(),
        }
    }

    /// A server whose `INFO` is denied.
    pub(crate) fn unknown(address: &str) -> Self {
        Self {
            address: address.into(),
            fields: HashMap::new(),
        }
    }

    pub(crate) fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }

    /// The id of this run of the server; it changes with each restart.
    pub(crate) fn run(&self) -> &str {
        self.field("run_id").unwrap_or_default()
    }

    /// The version, if it can be parsed.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.field("redis_version")?.split('.');
        let mut part = || parts.next().and_then(|part| part.parse().ok());
        Some((part()?, part()?))
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.field("role").is_some_and(|role| role != "master")
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.field("cluster_enabled") == Some("1")
    }

    /// The policy by which it may evict locks from its memory, if it may.
    pub(crate) fn evicts(&self) -> Option<&str> {
        let limited = self.field("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = self.field("maxmemory_policy")?;
        (limited && policy != "noeviction").then_some(policy)
    }
}

/// Refuses a server that cannot keep locks.
pub(crate) fn check(server: &Server, config: &Config) -> Result<()> {
    let to = &server.address;
    if server.field("loading") == Some("1") {
        return Err(Error::new(
            ErrorKind::Unreachable,
            format!("{to} is still loading its data"),
        ));
    }
    let cluster = config.deployment.is_cluster();
    let oldest = if cluster { OLDEST_CLUSTER } else { OLDEST };
    if let Some(version) = server.version().filter(|version| *version < oldest) {
        return Err(unsupported(
            format!("{to} is Redis {}.{}", version.0, version.1),
            format!("clinch needs Redis {}.{} or newer", oldest.0, oldest.1),
        ));
    }
    if server.is_replica() && !cluster {
        let master = match (server.field("master_host"), server.field("master_port")) {
            (Some(host), Some(port)) => format!(" of {host}:{port}"),
            _ => String::new(),
        };
        // The sentinels may not have noticed a failover yet.
        let kind = match config.deployment.is_sentinel() {
            true => ErrorKind::Unreachable,
            false => ErrorKind::Unsupported,
        };
        return Err(Error::new(
            kind,
            format!("{to} is a replica{master} and takes no writes"),
        )
        .with_advice("use its master, or redis+sentinel: to follow it"));
    }
    if server.is_cluster() != cluster {
        return Err(match cluster {
            true => unsupported(
                format!("{to} is not part of a cluster"),
                "use redis:// for one server".into(),
            ),
            false => unsupported(
                format!("{to} is part of a cluster"),
                "use redis+cluster://".into(),
            ),
        });
    }
    if let Some(policy) = server.evicts().filter(|_| !config.accept_eviction) {
        return Err(unsupported(
            format!("{to} throws keys out when its memory is full ({policy}), and locks with them"),
            "set maxmemory-policy noeviction, use another server, or accept it with \
             eviction=accept"
                .into(),
        ));
    }
    Ok(())
}

fn unsupported(message: String, advice: String) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str, info: &str) -> String {
        let config = Config::from_url(&url.parse().unwrap()).unwrap();
        let server = Server::read(Value::BulkString(info.into()), "h:1");
        check(&server, &config).map_or_else(|error| error.to_string(), |()| "ok".into())
    }

    #[test]
    fn an_old_server_is_named() {
        let message = checked("redis://h", "redis_version:5.0.14\r\nrole:master\r\n");
        assert!(
            message.contains("h:1 is Redis 5.0; clinch needs Redis 6.0"),
            "{message}"
        );
        let cluster = "redis_version:6.2.1\r\ncluster_enabled:1\r\nrole:slave\r\n";
        assert!(checked("redis+cluster://h", cluster).contains("7.0 or newer"));
        assert_eq!(
            checked("redis://h", "redis_version:6.2.1\r\nrole:master"),
            "ok"
        );
    }
}
