//! The rights of the user.

use std::sync::Arc;

use clinch_core::Name;
use clinch_core::store::{Finding, Severity};
use redis::Value;

use super::{finding, text};
use crate::config::Config;
use crate::connection::{Live, Session};
use crate::keys::Keys;

/// The commands that are sent and that scripts call; `K` and `C` stand for a key and a channel of the
/// namespace.
const COMMANDS: &[&str] = &[
    "EVALSHA 0000000000000000000000000000000000000000 1 K",
    "EVAL return 1 K",
    "GET K",
    "SET K v",
    "DEL K",
    "PUBSUB NUMSUB C",
    "SCAN 0",
    "TIME",
];
/// Without these, waiters poll.
const WAKES: &[&str] = &["SUBSCRIBE C", "UNSUBSCRIBE C", "PUBLISH C m"];
/// In addition on a cluster.
const CLUSTER: &[&str] = &["CLUSTER SLOTS", "CLUSTER NODES", "ASKING"];
/// On a cluster, without these, waiters poll; the channels of a name begin with its key.
const CLUSTER_WAKES: &[&str] = &["SSUBSCRIBE K", "SUNSUBSCRIBE K", "SPUBLISH K m"];

pub(super) async fn examine(
    session: &Arc<Session>,
    live: &Live,
    config: &Config,
    keys: &Keys,
) -> Finding {
    let found = look(session, live, config, keys).await;
    found.unwrap_or_else(|| {
        let to = &live.server.address;
        finding(
            Severity::Warning,
            "access",
            format!("{to}: the rights of this user could not be checked"),
            "allow +acl|whoami and +acl|dryrun, which Redis 7 has, or compare with \
             docs/stores/redis.md",
        )
    })
}

async fn look(
    session: &Arc<Session>,
    live: &Live,
    config: &Config,
    keys: &Keys,
) -> Option<Finding> {
    let to = &live.server.address;
    let user = session.query(live, redis::cmd("ACL").arg("WHOAMI")).await;
    let user = text(user.ok()?)?;
    let key = keys.state(&Name::new("doctor").ok()?);
    let allowed = async |command: &str| {
        let mut dry = redis::cmd("ACL");
        dry.arg("DRYRUN").arg(&user);
        for word in command.split(' ') {
            dry.arg(match word {
                "K" => &key,
                "C" => &keys.events,
                word => word,
            });
        }
        match session.query(live, &dry).await {
            Ok(Value::Okay) => Some(true),
            Ok(_) => Some(false),
            Err(_) => None,
        }
    };
    let mut missing = Vec::new();
    let mut needed = COMMANDS.to_vec();
    if config.wait > 0 {
        needed.push("WAIT 1 1");
    }
    let mut wakes = WAKES.to_vec();
    if config.deployment.is_cluster() {
        needed.extend(CLUSTER);
        wakes.extend(CLUSTER_WAKES);
    }
    for command in needed {
        if !allowed(command).await? {
            missing.extend(command.split(' ').next());
        }
    }
    let mut silent = Vec::new();
    for command in wakes {
        if !allowed(command).await? {
            silent.extend(command.split(' ').next());
        }
    }
    let needs = "the user needs the commands and channels of docs/stores/redis.md";
    Some(match (missing.is_empty(), silent.is_empty()) {
        (true, true) => finding(
            Severity::Ok,
            "access",
            format!("{to}: the user {user} may do what locks need"),
            "",
        ),
        (true, false) => finding(
            Severity::Warning,
            "access",
            format!(
                "{to}: the user {user} may not {}, so waiters poll",
                silent.join(", ")
            ),
            needs,
        ),
        (false, _) => finding(
            Severity::Broken,
            "access",
            format!("{to}: the user {user} may not {}", missing.join(", ")),
            needs,
        ),
    })
}
