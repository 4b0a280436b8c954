//! Settings of a server that would break a promise.

use clinch_core::Result;
use clinch_core::store::{Finding, Severity};

use crate::config::Config;
use crate::keys::Keys;
use crate::servers::Servers;
use crate::strict;

pub(crate) async fn examine(
    servers: &Servers,
    config: &Config,
    keys: &Keys,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for session in servers.all() {
        let live = session.live().await?;
        let server = &live.server;
        findings.push(finding(
            Severity::Ok,
            "server",
            format!("{} {:?}", server.address, server.version()),
            "",
        ));
        findings.extend(strict::examine(&session, &live, config, keys).await?);
    }
    Ok(findings)
}

pub(crate) fn finding(severity: Severity, subject: &str, message: String, advice: &str) -> Finding {
    Finding {
        severity,
        subject: subject.into(),
        message,
        advice: Some(advice.to_owned()).filter(|advice| !advice.is_empty()),
    }
}
