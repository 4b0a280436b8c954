//! Examines the cluster for what would break a guarantee.

use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{Finding, Severity};

use crate::client::Client;
use crate::error::CallError;
use crate::wire::{
    AlarmRequest, AlarmResponse, MemberListRequest, MemberListResponse, StatusRequest,
    StatusResponse,
};

/// The default of `--quota-backend-bytes`.
const QUOTA: i64 = 2 << 30;
const SLOW: Duration = Duration::from_millis(100);

pub(crate) async fn examine(client: &Client, minimum: Duration) -> Result<Vec<Finding>> {
    let read = CallError::without_effect;
    let session = &client.session;
    let before = client.clock.now();
    let path = "/etcdserverpb.Maintenance/Status";
    let status: StatusResponse = session.call(path, StatusRequest {}).await.map_err(read)?;
    let took = client.clock.now().since(before);
    let mut findings = vec![version(&status.version), leader(&status), size(&status)];
    let path = "/etcdserverpb.Cluster/MemberList";
    let members: Result<MemberListResponse, _> = session.call(path, MemberListRequest {}).await;
    findings.push(match members {
        Ok(members) => member_count(members.members.len()),
        Err(error) => warning("members", format!("unknown: {}", error.without_effect())),
    });
    let path = "/etcdserverpb.Maintenance/Alarm";
    let alarms: Result<AlarmResponse, _> = session.call(path, AlarmRequest {}).await;
    findings.push(match alarms {
        Ok(alarms) => active_alarms(&alarms),
        Err(error) => warning("alarms", format!("unknown: {}", error.without_effect())),
    });
    let minimum = format!("the minimum of this cluster is {minimum:?}");
    findings.push(ok("lease", minimum));
    findings.push(match took > SLOW {
        true => warning("latency", format!("the reply took {took:?}")),
        false => ok("latency", format!("replies within {took:?}")),
    });
    if session.config.login.is_none() && !session.config.is_local() {
        let text = "any client that reaches this etcd can break its locks";
        let advice = "enable authentication, and use tls=on";
        findings.push(warning("login", text).with_advice(advice));
    }
    Ok(findings)
}

fn ok(subject: &str, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Ok, subject, message)
}

fn warning(subject: &str, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Warning, subject, message)
}

fn broken(subject: &str, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Broken, subject, message)
}

fn version(text: &str) -> Finding {
    let mut parts = text
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let version = (next(), next(), next());
    let good = match version {
        (3, 4, patch) => patch >= 42,
        (3, 5, patch) => patch >= 13,
        version => version >= (3, 6, 0),
    };
    if version < (3, 4, 0) {
        let too_old = broken("version", format!("etcd {text} is too old"));
        return too_old.with_advice("use 3.4.42, 3.5.13 or newer");
    }
    match good {
        true => ok("version", format!("etcd {text}")),
        false => warning(
            "version",
            format!(
                "etcd {text}: a leader that was replaced while it was paused can revoke live leases \
                 (etcd issue 15247), which frees locks early"
            ),
        )
        .with_advice("use 3.4.42, 3.5.13 or newer; until then rely on fencing tokens"),
    }
}

fn leader(status: &StatusResponse) -> Finding {
    match status.leader {
        0 => broken("leader", "the cluster has none")
            .with_advice("check its other members: a majority must run and reach each other"),
        leader => ok("leader", format!("{leader:x}")),
    }
}

fn size(status: &StatusResponse) -> Finding {
    let (size, used) = (status.db_size, status.db_size_in_use);
    let text = format!("{} MB, of which {} MB are in use", size >> 20, used >> 20);
    match size > QUOTA / 4 * 3 {
        true => warning("database", text).with_advice(
            "a database at its quota (2 GB by default) refuses all writes: enable automatic \
             compaction (--auto-compaction-retention), and defragment it",
        ),
        false => ok("database", text),
    }
}

fn member_count(count: usize) -> Finding {
    match count {
        0..=2 => warning(
            "members",
            format!("{count}: the loss of one stops all locks"),
        )
        .with_advice("run three or five"),
        count => ok("members", format!("{count}")),
    }
}

fn active_alarms(alarms: &AlarmResponse) -> Finding {
    if alarms.alarms.is_empty() {
        return ok("alarms", "none");
    }
    let names: Vec<_> = alarms
        .alarms
        .iter()
        .map(|alarm| match alarm.alarm {
            1 => "no space left: all writes are refused",
            2 => "corrupt data",
            _ => "unknown",
        })
        .collect();
    broken("alarms", names.join(", "))
        .with_advice("repair the cluster, then run `etcdctl alarm disarm`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_lease_bugs_are_named() {
        for (text, severity) in [
            ("3.3.27", Severity::Broken),
            ("3.4.23", Severity::Warning),
            ("3.4.42", Severity::Ok),
            ("3.5.12", Severity::Warning),
            ("3.5.13", Severity::Ok),
            ("3.6.0-rc.1", Severity::Ok),
            ("4.0.0", Severity::Ok),
        ] {
            assert_eq!(version(text).severity, severity, "{text}");
        }
    }
}
