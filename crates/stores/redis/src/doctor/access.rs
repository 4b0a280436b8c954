//! What the user may do.

use std::sync::Arc;

use clinch_core::Name;
use clinch_core::store::{Finding, Severity};
use redis::Value;

use super::{finding, text};
use crate::config::Config;
use crate::keys::Keys;
use crate::session::{Live, Session};

/// What scripts call and we send, each with arguments that are ours: a key or a channel of the
/// namespace stands for `K` and `C`.
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
            format!("{to}: what this user may do could not be looked at"),
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
    for command in needed {
        if !allowed(command).await? {
            missing.extend(command.split(' ').next());
        }
    }
    let mut unheard = Vec::new();
    for command in WAKES {
        if !allowed(command).await? {
            unheard.extend(command.split(' ').next());
        }
    }
    let needs = "the user needs the commands and channels of docs/stores/redis.md";
    Some(match (missing.is_empty(), unheard.is_empty()) {
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
                unheard.join(", ")
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
