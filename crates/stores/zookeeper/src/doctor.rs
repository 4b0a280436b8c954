//! Settings of the ensemble that would break a promise.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Finding, Severity};
use clinch_core::{Clock, Result, keeper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::core::Core;
use crate::error::sending;

/// A way to the servers that is longer than this makes every lock slow.
const SLOW: Duration = Duration::from_millis(100);
/// The oldest servers with what events need.
const EVENTS: (u32, u32) = (3, 6);

/// Looks at the ensemble.
pub(crate) async fn examine(core: &Arc<Core>) -> Result<Vec<Finding>> {
    let mut findings = vec![latency(core).await?, sessions(core).await?];
    let servers: Vec<String> = core
        .sessions
        .config
        .servers
        .split(',')
        .map(str::to_owned)
        .collect();
    findings.push(size(servers.len()));
    if core.sessions.config.tls.is_some() {
        let tick = core.sessions.config.tick;
        // Servers are asked in four letters, which they take without encryption only.
        findings.push(finding(
            Severity::Warning,
            "tick",
            format!("encrypted, servers do not tell their tickTime; clinch counts with {tick:?}"),
            "see that tickTime is no longer on any server, or write tick= into the URL",
        ));
        return Ok(findings);
    }
    for server in servers {
        let (clock, patience) = (core.clock.clone(), core.sessions.config.timeout);
        let look =
            keeper::run(async move { Ok(Look::take(server, &clock, patience).await) }).await?;
        findings.extend(look.server());
        findings.extend(look.tick(core.sessions.config.tick));
    }
    Ok(findings)
}

/// A write, as every claim is one.
async fn latency(core: &Arc<Core>) -> Result<Finding> {
    let base = core.sessions.base().await?;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let sent = core.clock.now();
        base.make_folder(core.paths.root()).await.map_err(sending)?;
        best = best.min(core.clock.now().since(sent));
    }
    let message = format!("the ensemble commits in {best:?}");
    Ok(match best > SLOW {
        true => finding(
            Severity::Warning,
            "latency",
            message,
            "choose leases of many times that, or nearer servers with quicker disks",
        ),
        false => finding(Severity::Ok, "latency", message, ""),
    })
}

async fn sessions(core: &Arc<Core>) -> Result<Finding> {
    let longest = core.sessions.base().await?.timeout;
    let lease = core.sessions.config.lease_in(longest);
    let message = format!("sessions last up to {longest:?}, so leases up to {lease:?}");
    Ok(match lease < Duration::from_secs(30) {
        true => finding(
            Severity::Warning,
            "sessions",
            message,
            "the default lease of 30 s does not fit: give shorter ones, or raise maxSessionTimeout",
        ),
        false => finding(Severity::Ok, "sessions", message, ""),
    })
}

fn size(servers: usize) -> Finding {
    let message = match servers {
        1 => "the URL names one server".to_owned(),
        count => format!("the URL names {count} servers"),
    };
    let advice = match servers {
        1 => "name all servers of the ensemble: with one, its loss is the loss of every lock",
        count if count % 2 == 0 => {
            "an even number survives no more losses than one server less: use an odd one"
        }
        _ => return finding(Severity::Ok, "ensemble", message, ""),
    };
    finding(Severity::Warning, "ensemble", message, advice)
}

/// What a server says of itself when asked in four letters.
struct Look {
    server: String,
    /// `None` where nobody answers at all.
    status: Option<String>,
    settings: HashMap<String, String>,
}

impl Look {
    async fn take(server: String, clock: &Clock, patience: Duration) -> Self {
        let status = ask(&server, "srvr", clock, patience).await;
        let settings = ask(&server, "conf", clock, patience).await;
        let settings = settings.unwrap_or_default();
        let pairs = settings.lines().filter_map(|line| line.split_once('='));
        Self {
            status,
            settings: pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
            server,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        let status = self.status.as_deref()?;
        status.lines().find_map(|line| line.strip_prefix(name))
    }

    fn server(&self) -> Option<Finding> {
        let server = &self.server;
        if self.status.is_none() {
            return Some(finding(
                Severity::Warning,
                "server",
                format!("{server} does not answer"),
                "is it running, and reachable from here?",
            ));
        }
        let (Some(version), Some(mode)) = (self.field("Zookeeper version: "), self.field("Mode: "))
        else {
            return Some(finding(
                Severity::Ok,
                "server",
                format!("{server} does not tell its version: srvr is not whitelisted"),
                "",
            ));
        };
        let version = version.split(['-', ',']).next().unwrap_or_default();
        let message = format!("{server} is ZooKeeper {version}, {mode}");
        let mut numbers = version
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let old = match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => (major, minor) < EVENTS,
            _ => false,
        };
        Some(match old {
            true => finding(
                Severity::Warning,
                "server",
                message,
                "events and elections' observers need ZooKeeper 3.6: upgrade",
            ),
            false => finding(Severity::Ok, "server", message, ""),
        })
    }

    fn tick(&self, tick: Duration) -> Option<Finding> {
        let millis = self.settings.get("tickTime")?.parse().ok()?;
        let theirs = Duration::from_millis(millis);
        let message = format!("{}: tickTime is {theirs:?}", self.server);
        Some(match theirs > tick {
            true => finding(
                Severity::Broken,
                "tick",
                format!("{message}, and clinch counts with {tick:?}"),
                &format!(
                    "its leader may end a session before our deadline: write tick={millis}ms \
                     into the URL"
                ),
            ),
            false => finding(Severity::Ok, "tick", message, ""),
        })
    }
}

async fn ask(server: &str, word: &str, clock: &Clock, patience: Duration) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(word.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    tokio::select! {
        answer = asked => answer,
        () = clock.sleep(patience) => None,
    }
}

fn finding(severity: Severity, subject: &str, message: String, advice: &str) -> Finding {
    let finding = Finding::new(severity, subject, message);
    match advice {
        "" => finding,
        advice => finding.with_advice(advice),
    }
}
