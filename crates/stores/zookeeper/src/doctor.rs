//! Examines settings of the ensemble that would break a guarantee.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Finding, Severity};
use clinch_core::{Clock, Result, keeper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::error::request_error;

/// A commit that takes longer makes every lock slow.
const SLOW: Duration = Duration::from_millis(100);
/// The oldest version that supports events.
const EVENTS: (u32, u32) = (3, 6);

/// Handles [`Admin::doctor`](clinch_core::store::Admin::doctor).
pub(crate) async fn examine(client: &Arc<Client>) -> Result<Vec<Finding>> {
    let config = &client.sessions.config;
    let mut findings = vec![latency(client).await?, sessions(client).await?];
    findings.push(size(config.servers.len()));
    let tick = config.tick;
    if config.tls.is_some() {
        // Servers answer four-letter commands only on unencrypted connections.
        let message =
            format!("encrypted, servers do not report their tickTime; clinch counts with {tick:?}");
        let advice = "see that tickTime is no longer on any server, or write tick= into the URL";
        findings.push(Finding::new(Severity::Warning, "tick", message).with_advice(advice));
        return Ok(findings);
    }
    for server in &config.servers {
        let (server, clock, timeout) = (server.to_string(), client.clock.clone(), config.timeout);
        let reading = async move { Ok(ServerStatus::read(server, &clock, timeout).await) };
        let status = keeper::run(reading).await?;
        findings.push(status.version());
        findings.extend(status.tick(tick));
    }
    Ok(findings)
}

/// The latency of a write, because every claim is one.
async fn latency(client: &Arc<Client>) -> Result<Finding> {
    let base = client.sessions.base().await?;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let sent = client.clock.now();
        let written = base.create_folder(client.paths.root()).await;
        written.map_err(request_error)?;
        best = best.min(client.clock.now().since(sent));
    }
    Ok(warn_if(
        best > SLOW,
        "latency",
        format!("the ensemble commits in {best:?}"),
        "choose leases of many times that, or nearer servers with quicker disks",
    ))
}

async fn sessions(client: &Arc<Client>) -> Result<Finding> {
    let longest = client.sessions.base().await?.timeout;
    let lease = client.sessions.config.lease_in(longest);
    Ok(warn_if(
        lease < Duration::from_secs(30),
        "sessions",
        format!("sessions last up to {longest:?}, so leases up to {lease:?}"),
        "the default lease of 30 s does not fit: use shorter ones, or raise maxSessionTimeout",
    ))
}

fn size(servers: usize) -> Finding {
    let message = match servers {
        1 => "the URL names one server".to_owned(),
        count => format!("the URL names {count} servers"),
    };
    let advice = match servers {
        1 => "name all servers of the ensemble: with one, its loss is the loss of every lock",
        _ => "an even number survives no more losses than one server less: use an odd one",
    };
    warn_if(
        servers == 1 || servers.is_multiple_of(2),
        "ensemble",
        message,
        advice,
    )
}

/// What a server reports to four-letter commands.
struct ServerStatus {
    server: String,
    /// `None` if it does not answer at all.
    status: Option<String>,
    settings: HashMap<String, String>,
}

impl ServerStatus {
    async fn read(server: String, clock: &Clock, timeout: Duration) -> Self {
        let status = command(&server, "srvr", clock, timeout).await;
        let settings = command(&server, "conf", clock, timeout).await;
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

    fn version(&self) -> Finding {
        let server = &self.server;
        if self.status.is_none() {
            let message = format!("{server} does not answer");
            return Finding::new(Severity::Warning, "server", message)
                .with_advice("is it running, and reachable from here?");
        }
        let (Some(version), Some(mode)) = (self.field("Zookeeper version: "), self.field("Mode: "))
        else {
            let message = format!("{server} does not report its version: srvr is not whitelisted");
            return Finding::new(Severity::Ok, "server", message);
        };
        let version = version.split(['-', ',']).next().unwrap_or_default();
        let mut numbers = version
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let old = match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => (major, minor) < EVENTS,
            _ => false,
        };
        warn_if(
            old,
            "server",
            format!("{server} is ZooKeeper {version}, {mode}"),
            "events and elections' observers need ZooKeeper 3.6: upgrade",
        )
    }

    fn tick(&self, tick: Duration) -> Option<Finding> {
        let millis = self.settings.get("tickTime")?.parse().ok()?;
        let theirs = Duration::from_millis(millis);
        let message = format!("{}: tickTime is {theirs:?}", self.server);
        if theirs <= tick {
            return Some(Finding::new(Severity::Ok, "tick", message));
        }
        let message = format!("{message}, and clinch counts with {tick:?}");
        let advice = format!(
            "its leader may end a session before our deadline: write tick={millis}ms into the URL"
        );
        Some(Finding::new(Severity::Broken, "tick", message).with_advice(advice))
    }
}

/// The reply to a four-letter command; `None` if there is none in time.
async fn command(server: &str, name: &str, clock: &Clock, timeout: Duration) -> Option<String> {
    let reply = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(name.as_bytes()).await.ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.ok()?;
        Some(reply)
    };
    tokio::select! {
        reply = reply => reply,
        () = clock.sleep(timeout) => None,
    }
}

/// A warning with advice under this condition, else an `Ok` without.
fn warn_if(condition: bool, subject: &str, message: String, advice: &str) -> Finding {
    match condition {
        true => Finding::new(Severity::Warning, subject, message).with_advice(advice),
        false => Finding::new(Severity::Ok, subject, message),
    }
}
