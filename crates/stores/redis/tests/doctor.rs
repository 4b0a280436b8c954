//! What the doctor finds, on servers with the settings that it is to find.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use clinch_core::store::{Finding, Severity};
use clinch_testkit::servers::{Redis, Step};
use clinch_testkit::wait::eventually;
use common::{Client, LONG};

async fn examine(url: &str) -> Vec<Finding> {
    let client = Client::open(url).await.unwrap();
    client.store.doctor().await.unwrap()
}

/// The finding of this subject.
fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.subject == subject);
    found.unwrap_or_else(|| panic!("nothing about {subject}: {findings:?}"))
}

fn says(findings: &[Finding], subject: &str, severity: Severity, words: &str) {
    let finding = of(findings, subject);
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.message.contains(words), "{finding:?}");
    // What is wrong comes with advice.
    assert_eq!(
        finding.advice.is_some(),
        severity != Severity::Ok,
        "{finding:?}"
    );
}

#[tokio::test]
async fn a_durable_server_is_well() {
    let server = Redis::with().append_only("always").start().unwrap();
    let findings = examine(&server.url()).await;
    assert!(
        findings.iter().all(|f| f.severity == Severity::Ok),
        "{findings:?}"
    );
    let here = format!("127.0.0.1:{} is Redis ", server.port());
    says(&findings, "server", Severity::Ok, &here);
    says(
        &findings,
        "server",
        Severity::Ok,
        "a master, and speaks RESP3",
    );
    says(&findings, "latency", Severity::Ok, "answers in");
    says(&findings, "memory", Severity::Ok, "no memory limit");
    says(&findings, "persistence", Severity::Ok, "before it answers");
    says(
        &findings,
        "access",
        Severity::Ok,
        "default may do what locks need",
    );
}

#[tokio::test]
async fn what_a_restart_would_lose_is_reported() {
    let server = Redis::start().unwrap();
    let warned = async |words: &str| {
        let findings = examine(&server.url()).await;
        says(&findings, "persistence", Severity::Warning, words);
        says(
            &findings,
            "persistence",
            Severity::Warning,
            "tokens still rise",
        );
        let advice = of(&findings, "persistence").advice.clone().unwrap();
        assert!(advice.contains("durability=strict"), "{advice}");
    };
    warned("keeps nothing: a restart loses all holds").await;
    let set = |name, value| server.cli(&["CONFIG", "SET", name, value]).unwrap();
    set("save", "3600 1");
    warned("keeps snapshots only").await;
    set("appendonly", "yes");
    warned("each second").await;
    set("appendfsync", "no");
    warned("when the system likes").await;
}

#[tokio::test]
async fn strict_mode_makes_persistence_well() {
    let server = Redis::start().unwrap();
    let findings = examine(&format!("{}/?durability=strict", server.url())).await;
    says(
        &findings,
        "persistence",
        Severity::Ok,
        "nothing is granted until",
    );
}

#[tokio::test]
async fn eviction_is_broken_even_if_it_is_accepted() {
    let server = Redis::with()
        .config("maxmemory", "100mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start()
        .unwrap();
    let findings = examine(&format!("{}/?eviction=accept", server.url())).await;
    says(&findings, "memory", Severity::Broken, "allkeys-lru");
    server
        .cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
        .unwrap();
    let findings = examine(&server.url()).await;
    says(
        &findings,
        "memory",
        Severity::Ok,
        "takes no new locks above 104857600 bytes",
    );
}

#[tokio::test]
async fn replicas_that_are_not_waited_for_are_reported() {
    let server = Redis::start().unwrap();
    server
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .unwrap();
    let findings = examine(&server.url()).await;
    says(
        &findings,
        "min-replicas",
        Severity::Broken,
        "has 0: no lock can be taken",
    );
    let _replica = Redis::with().replica_of(server.port()).start().unwrap();
    eventually("the replica is in step", async || {
        let info = server.info("replication").unwrap();
        info.get("min_slaves_good_slaves")
            .is_some_and(|good| good == "1")
    })
    .await;
    let findings = examine(&server.url()).await;
    says(
        &findings,
        "replication",
        Severity::Warning,
        "does not wait for them",
    );
    says(&findings, "min-replicas", Severity::Ok, "has 1");
    let findings = examine(&format!("{}/?wait=1", server.url())).await;
    says(
        &findings,
        "replication",
        Severity::Ok,
        "once 1 of them have it",
    );
}

/// Our connection listens, and such connections are spared.
#[tokio::test]
async fn a_server_that_closes_idle_connections_spares_ours() {
    let server = Redis::with().config("timeout", "1").start().unwrap();
    let findings = examine(&server.url()).await;
    says(&findings, "idle", Severity::Ok, "idle for 1 s");
    let client = Client::at(&server).await;
    client.granted(&client.mutex("a", LONG)).await;
    let ours = || {
        let clients = server.cli(&["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap();
        let idle = clients
            .split(' ')
            .find_map(|word| word.strip_prefix("idle="));
        idle.map(|seconds| seconds.parse::<u32>().unwrap())
    };
    eventually("it has been idle for long", async || {
        ours().expect("it is still connected") >= 3
    })
    .await;
}

#[tokio::test]
async fn small_buffers_are_reported() {
    let server = Redis::start().unwrap();
    let set = |limits| {
        server
            .cli(&["CONFIG", "SET", "client-output-buffer-limit", limits])
            .unwrap();
    };
    set("pubsub 1024 512 60");
    let findings = examine(&server.url()).await;
    says(&findings, "buffers", Severity::Warning, "1024 bytes behind");
    set("pubsub 0 0 0");
    let findings = examine(&server.url()).await;
    assert!(findings.iter().all(|finding| finding.subject != "buffers"));
}

#[tokio::test]
async fn a_clock_before_2020_is_broken() {
    let server = Redis::with().clock_shim().start().unwrap();
    let years = std::time::Duration::from_secs(40 * 365 * 86_400);
    server.step_clock(years, Step::Back).unwrap();
    let findings = examine(&server.url()).await;
    says(&findings, "clock", Severity::Broken, "before 2020");
}

#[tokio::test]
async fn missing_rights_are_reported() {
    let server = Redis::with()
        .user("few", "pw", "~* &* +@all -get -set")
        .user("deaf", "pw", "~* resetchannels +@all")
        .user("keys", "pw", "~other:* &* +@all")
        .start()
        .unwrap();
    let findings = examine(&server.url_as("few", "pw")).await;
    says(
        &findings,
        "access",
        Severity::Broken,
        "few may not GET, SET",
    );
    let findings = examine(&server.url_as("deaf", "pw")).await;
    says(
        &findings,
        "access",
        Severity::Warning,
        "SUBSCRIBE, PUBLISH, so waiters poll",
    );
    let findings = examine(&server.url_as("keys", "pw")).await;
    says(&findings, "access", Severity::Broken, "GET, SET");
}

/// Rules that cover all names and not the key beside them: locks work, so nothing else would reveal it.
#[tokio::test]
async fn a_missing_right_to_the_highest_number_is_reported() {
    let server = Redis::with()
        .user("names", "pw", "~clinch:{clinch:*} &* +@all")
        .user("blind", "pw", "~clinch:{clinch:*} &* +@all -acl")
        .user("reads", "pw", "~clinch:{clinch:*} %R~clinch:* &* +@all")
        .start()
        .unwrap();
    for (user, word) in [("names", "GET"), ("blind", "GET"), ("reads", "SET")] {
        let findings = examine(&server.url_as(user, "pw")).await;
        let words = format!("may not {word} clinch:{{clinch:}}highest");
        says(&findings, "tokens", Severity::Warning, &words);
    }
    let findings = examine(&server.url()).await;
    assert!(findings.iter().all(|found| found.subject != "tokens"));
    // Looking changes no number.
    server
        .cli(&["SET", "clinch:{clinch:}highest", "77"])
        .unwrap();
    examine(&server.url()).await;
    let kept = server.cli(&["GET", "clinch:{clinch:}highest"]).unwrap();
    assert_eq!(kept, "77");
}

/// Managed servers deny administration: what could not be seen is said.
#[tokio::test]
async fn denied_commands_are_named_and_the_rest_is_looked_at() {
    let server = Redis::with()
        .user("noconfig", "pw", "~* &* +@all -config")
        .user("nothing", "pw", "~* &* +@all -config -info -acl")
        .start()
        .unwrap();
    let findings = examine(&server.url_as("noconfig", "pw")).await;
    says(
        &findings,
        "settings",
        Severity::Warning,
        "CONFIG is denied to this user, so fsync",
    );
    says(
        &findings,
        "persistence",
        Severity::Warning,
        "a restart loses holds",
    );
    says(&findings, "server", Severity::Ok, "is Redis");
    let findings = examine(&server.url_as("nothing", "pw")).await;
    says(
        &findings,
        "settings",
        Severity::Warning,
        "INFO and CONFIG are denied",
    );
    says(
        &findings,
        "access",
        Severity::Warning,
        "could not be checked",
    );
    says(&findings, "latency", Severity::Ok, "answers in");
}
