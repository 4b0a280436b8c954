//! Settings of a server that would break a promise.

use clinch_core::Result;
use clinch_core::store::{Finding, Severity};

use crate::config::Config;
use crate::servers::Servers;

pub(crate) async fn examine(servers: &Servers, config: &Config) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for session in servers.all() {
        let server = session.live().await?.server;
        findings.push(finding(
            Severity::Ok,
            "server",
            format!("{} {:?}", server.address, server.version()),
            "",
        ));
        let _ = config;
    }
    Ok(findings)
}

fn finding(severity: Severity, subject: &str, message: String, advice: &str) -> Finding {
    Finding {
        severity,
        subject: subject.into(),
        message,
        advice: Some(advice.to_owned()).filter(|advice| !advice.is_empty()),
    }
}
