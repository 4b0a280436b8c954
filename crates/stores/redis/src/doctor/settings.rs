//! Memory, persistence, replicas, buffers and the clock.

use clinch_core::store::{Finding, Severity};

use super::{Look, finding};
use crate::config::Config;

/// Messages of a few hundred bytes are buffered while a client is slow.
const SMALL_BUFFER: u64 = 256 * 1024;

pub(super) fn examine(look: &Look, config: &Config) -> Vec<Finding> {
    let findings = [
        memory(look),
        persistence(look, config),
        replicas(look, config),
        enough_replicas(look),
        idle(look),
        buffer(look),
        clock(look),
    ];
    findings.into_iter().flatten().collect()
}

fn memory(look: &Look) -> Option<Finding> {
    let to = look.to();
    if let Some(policy) = look.server.evicts() {
        return Some(finding(
            Severity::Broken,
            "memory",
            format!("{to} throws keys out when its memory is full ({policy}), and locks with them"),
            "set maxmemory-policy noeviction, or use another server",
        ));
    }
    let message = match look.server.field("maxmemory")? {
        "0" => format!("{to} has no memory limit of its own"),
        bytes => format!(
            "{to} takes no new locks above {bytes} bytes; holds are renewed and released even then"
        ),
    };
    Some(finding(Severity::Ok, "memory", message, ""))
}

fn persistence(look: &Look, config: &Config) -> Option<Finding> {
    const ADVICE: &str = "set appendonly yes and appendfsync always, or use durability=strict";
    let to = look.to();
    let ok = |message| Some(finding(Severity::Ok, "persistence", message, ""));
    let warn = |message| Some(finding(Severity::Warning, "persistence", message, ADVICE));
    if config.strict.is_some() {
        return ok(format!(
            "{to}: after a loss of data nothing is granted until every lost lease is over"
        ));
    }
    let logged = look.server.field("aof_enabled")? == "1";
    let restart = "a hold may be granted twice; tokens still rise";
    if logged {
        return match look.setting("appendfsync") {
            Some("always") => ok(format!(
                "{to} writes every grant to its disk before it answers"
            )),
            Some("everysec") => warn(format!(
                "{to} writes to its disk each second: a machine that loses its power loses up to a \
                 second of grants, and {restart}"
            )),
            Some(_) => warn(format!(
                "{to} writes to its disk when the system likes: a machine that loses its power \
                 loses grants, and {restart}"
            )),
            None => ok(format!(
                "{to} logs every grant; how often to disk could not be seen"
            )),
        };
    }
    match look.setting("save") {
        None => warn(format!(
            "{to} keeps no log: a restart loses holds; {restart}"
        )),
        Some("") => warn(format!(
            "{to} keeps nothing: a restart loses all holds; {restart}"
        )),
        Some(_) => warn(format!(
            "{to} keeps snapshots only: a restart goes back to the last one; {restart}"
        )),
    }
}

fn replicas(look: &Look, config: &Config) -> Option<Finding> {
    let count: u32 = look.server.field("connected_slaves")?.parse().ok()?;
    if count == 0 {
        return None;
    }
    let to = look.to();
    Some(match config.wait {
        0 => finding(
            Severity::Warning,
            "replication",
            format!(
                "{to} has {count} replicas and does not wait for them: a failover loses grants"
            ),
            "add wait=1, or use redis+sentinel: to follow the master",
        ),
        wait => finding(
            Severity::Ok,
            "replication",
            format!("{to} has {count} replicas, and a grant counts once {wait} of them have it"),
            "",
        ),
    })
}

fn enough_replicas(look: &Look) -> Option<Finding> {
    let need = look
        .number("min-replicas-to-write")
        .filter(|need| *need > 0)?;
    let good = look.server.field("min_slaves_good_slaves")?;
    let good: u64 = good.parse().ok()?;
    let message = format!(
        "{} writes with {need} replicas or more, and has {good}",
        look.to()
    );
    Some(match good < need {
        true => finding(
            Severity::Broken,
            "min-replicas",
            format!("{message}: no lock can be taken"),
            "start the replicas, or lower min-replicas-to-write",
        ),
        false => finding(Severity::Ok, "min-replicas", message, ""),
    })
}

/// A connection with a subscription is spared, and ours has one unless channels are denied.
fn idle(look: &Look) -> Option<Finding> {
    let seconds = look.number("timeout").filter(|seconds| *seconds > 0)?;
    Some(finding(
        Severity::Ok,
        "idle",
        format!(
            "{} closes connections that are idle for {seconds} s, but not those that listen, as \
             ours does",
            look.to()
        ),
        "",
    ))
}

fn buffer(look: &Look) -> Option<Finding> {
    // normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60
    let limits = look.setting("client-output-buffer-limit")?;
    let mut words = limits.split_whitespace();
    words.find(|word| *word == "pubsub")?;
    let small = |bytes: Option<u64>| bytes.filter(|bytes| (1..SMALL_BUFFER).contains(bytes));
    let (hard, soft) = (words.next()?.parse().ok(), words.next()?.parse().ok());
    let bytes = small(hard).or(small(soft))?;
    Some(finding(
        Severity::Warning,
        "buffers",
        format!(
            "{} cuts off a listener that is {bytes} bytes behind: wakes are lost, and waiters poll",
            look.to()
        ),
        "set client-output-buffer-limit pubsub 32mb 8mb 60",
    ))
}

fn clock(look: &Look) -> Option<Finding> {
    // Microseconds since 1970, and those of the year 2020.
    let time: u64 = look.server.field("server_time_usec")?.parse().ok()?;
    (time < 1_577_836_800_000_000).then(|| {
        finding(
            Severity::Broken,
            "clock",
            format!(
                "{} says that it is before 2020, and tokens begin there",
                look.to()
            ),
            "set the clock of the server",
        )
    })
}
