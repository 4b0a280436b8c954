//! `clinch doctor`: settings of a server that would break a guarantee.

mod access;
mod settings;
mod tokens;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Finding, Severity};
use clinch_core::{Clock, ErrorKind, Result};
use redis::Value;

use crate::config::Config;
use crate::connection::Server;
use crate::connection::Servers;
use crate::connection::{Live, Session};
use crate::keys::Keys;
use crate::strict;

/// The oldest server that the tests run on.
const TESTED: (u32, u32) = (7, 0);
/// A longer round trip makes every lock slow.
const SLOW: Duration = Duration::from_millis(100);

/// Examines every server; with `keys` also what our own keys need.
pub(crate) async fn examine(
    servers: &Servers,
    config: &Config,
    keys: Option<&Keys>,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for session in servers.all() {
        let live = session.live().await?;
        let look = Look::take(&session, &live).await?;
        findings.extend(look.server());
        findings.push(look.latency(&session, &live).await?);
        findings.extend(settings::examine(&look, config));
        if let Some(keys) = keys {
            findings.push(access::examine(&session, &live, config, keys).await);
            findings.extend(tokens::examine(&session, &live, config, keys).await);
            match strict::examine(&session, &live, config, keys).await {
                Ok(found) => findings.extend(found),
                // A user of the default mode needs no right to the key of strict mode.
                Err(error) if error.kind() == ErrorKind::Denied && config.strict.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        findings.extend(look.hidden());
    }
    Ok(findings)
}

/// The state and settings of a server.
struct Look {
    /// Its `INFO`, unless that is denied.
    server: Server,
    /// Its settings; `None` where `CONFIG` is denied.
    settings: Option<HashMap<String, String>>,
}

impl Look {
    async fn take(session: &Arc<Session>, live: &Live) -> Result<Self> {
        let to = live.server.address.clone();
        // Read again: it may have changed since we connected.
        let server = match session.query(live, &redis::cmd("INFO")).await {
            Ok(info) => Server::read(info, &to),
            Err(trouble) if trouble.is_denied() => Server::unknown(&to),
            Err(trouble) => return Err(trouble.into()),
        };
        let mut get = redis::cmd("CONFIG");
        let settings = match session.query(live, get.arg("GET").arg("*")).await {
            Ok(Value::Map(pairs)) => Some(
                pairs
                    .into_iter()
                    .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
                    .collect(),
            ),
            _ => None,
        };
        Ok(Self { server, settings })
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// A number among the settings.
    fn number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    fn to(&self) -> &str {
        &self.server.address
    }

    fn server(&self) -> Option<Finding> {
        let version = self.server.field("redis_version")?;
        let message = format!(
            "{} is Redis {version}, a {}, and speaks RESP3",
            self.to(),
            self.server.field("role").unwrap_or("server"),
        );
        Some(match self.server.version() {
            Some(read) if read < TESTED => finding(
                Severity::Warning,
                "server",
                message,
                "clinch is tested on Redis 7.0 and newer: upgrade",
            ),
            _ => finding(Severity::Ok, "server", message, ""),
        })
    }

    async fn latency(&self, session: &Arc<Session>, live: &Live) -> Result<Finding> {
        let clock = Clock::boot();
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let sent = clock.now();
            session.query(live, &redis::cmd("TIME")).await?;
            best = best.min(clock.now().since(sent));
        }
        let message = format!("{} answers in {best:?}", self.to());
        Ok(match best > SLOW {
            true => finding(
                Severity::Warning,
                "latency",
                message,
                "choose leases of many times that, or a nearer server",
            ),
            false => finding(Severity::Ok, "latency", message, ""),
        })
    }

    /// What could not be examined.
    fn hidden(&self) -> Option<Finding> {
        let info = self.server.fields.is_empty();
        let (denied, unseen) = match (info, self.settings.is_none()) {
            (true, true) => (
                "INFO and CONFIG are",
                "version, role, eviction and persistence",
            ),
            (true, false) => ("INFO is", "version and role"),
            (false, true) => ("CONFIG is", "fsync, snapshots, idle time and buffers"),
            (false, false) => return None,
        };
        Some(finding(
            Severity::Warning,
            "settings",
            format!(
                "{}: {denied} denied to this user, so {unseen} could not be checked",
                self.to()
            ),
            "allow +info and +config|get, or check them by hand",
        ))
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(crate) fn finding(severity: Severity, subject: &str, message: String, advice: &str) -> Finding {
    let finding = Finding::new(severity, subject, message);
    match advice {
        "" => finding,
        advice => finding.with_advice(advice),
    }
}
