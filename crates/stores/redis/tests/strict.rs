//! What a loss of data does: the default mode lets two holders overlap in time, with their tokens
//! in order; strict mode does not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use clinch_core::store::Severity;
use clinch_core::{BootTime, Clinch, ErrorKind, Guard};
use clinch_testkit::servers::{Redis, Sentinels, Step};
use clinch_testkit::wait::{eventually, soon};
use common::client;

/// The longest lease of strict mode here; the shortest that survives a busy machine.
const LONGEST: Duration = Duration::from_secs(6);
const STRICT: &str = "durability=strict&longest=6s";

fn deadline(by: &Clinch, guard: &Guard) -> BootTime {
    by.clock().now() + guard.remaining()
}

/// Two holders at once, after a loss that `lose` causes; tokens distinguish them.
async fn overlaps(url: &str, lose: impl AsyncFnOnce()) {
    let old = client(url).await.unwrap();
    // The next renewal, which would detect the loss, is far off.
    let lease = Duration::from_secs(300);
    let first = old.lock("x").lease(lease).acquire().await.unwrap();
    lose().await;
    let new = client(url).await.unwrap();
    let second = soon("a grant", new.lock("x").lease(lease).acquire())
        .await
        .unwrap();
    assert!(first.is_valid() && second.is_valid(), "they do not overlap");
    assert!(second.token() > first.token(), "the loss lowered the token");
}

/// The same loss; nothing is granted before the first guard's deadline.
async fn excludes(url: &str, longest: Duration, lose: impl AsyncFnOnce()) {
    let old = client(url).await.unwrap();
    let lock = old.lock("x").lease(longest);
    let first = soon("the first grant", lock.acquire()).await.unwrap();
    let ends = deadline(&old, &first);
    lose().await;
    let ends = ends.max(deadline(&old, &first));
    let new = client(url).await.unwrap();
    let lock = new.lock("x").lease(longest);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let short = lock.acquire_within(Duration::from_millis(100)).await;
    assert!(short.unwrap().is_none());
    let second = soon("the second grant", lock.acquire()).await.unwrap();
    assert!(
        new.clock().now() >= ends,
        "granted before the deadline of the first"
    );
    assert!(!first.is_valid() && second.is_valid());
    assert!(second.token() > first.token());
}

async fn lose_by_restart(redis: &Redis) {
    redis.kill().unwrap();
    redis.start_empty().unwrap();
}

/// An empty replica takes over: it was down when the lock was granted.
async fn lose_by_failover(all: &Sentinels) {
    let old = all.master().unwrap().port();
    let replicas = || all.servers().iter().filter(|s| s.port() != old);
    all.kill_master().unwrap();
    replicas().for_each(|s| s.start_again().unwrap());
    all.wait_for_new_master(old).unwrap();
}

fn without_replicas() -> Sentinels {
    let all = Sentinels::start().unwrap();
    let master = all.master().unwrap().port();
    let replicas = all.servers().iter().filter(|s| s.port() != master);
    replicas.for_each(|s| s.kill().unwrap());
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn default_mode_overlaps_after_a_restart_without_data() {
    let redis = Redis::start().unwrap();
    overlaps(&redis.url(), async || lose_by_restart(&redis).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_excludes_after_a_restart_without_data() {
    let redis = Redis::start().unwrap();
    let url = format!("{}?{STRICT}", redis.url());
    excludes(&url, LONGEST, async || lose_by_restart(&redis).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_mode_overlaps_after_flushall() {
    let redis = Redis::start().unwrap();
    overlaps(&redis.url(), async || {
        drop(redis.cli(&["FLUSHALL"]).unwrap())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_excludes_after_flushall() {
    let redis = Redis::start().unwrap();
    let url = format!("{}?{STRICT}", redis.url());
    excludes(&url, LONGEST, async || {
        drop(redis.cli(&["FLUSHALL"]).unwrap())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_mode_overlaps_after_a_failover_that_missed_the_grant() {
    let all = without_replicas();
    let url = format!("{}?wait=0", all.url());
    overlaps(&url, async || lose_by_failover(&all).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_excludes_after_a_failover_that_missed_the_grant() {
    let all = without_replicas();
    // Longer than a failover takes: it would be granted again in time without the pause.
    let url = format!("{}?wait=0&durability=strict&longest=15s", all.url());
    let longest = Duration::from_secs(15);
    excludes(&url, longest, async || lose_by_failover(&all).await).await;
}

/// A grant reached the master only, which then was a replica for a moment, got the data of another
/// server and is master again: its run is the same, its data are not.
async fn there_and_back(one: &Redis, other: &Redis) {
    let follow = |who: &Redis, whom: &Redis| {
        let port = whom.port().to_string();
        who.cli(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    };
    let in_step = async |replica: &Redis| {
        eventually("the link", async || {
            let info = replica.info("replication").unwrap();
            info.get("master_link_status")
                .is_some_and(|link| link == "up")
        })
        .await;
    };
    follow(one, other);
    in_step(one).await;
    one.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_excludes_after_a_time_as_replica() {
    let (one, other) = (Redis::start().unwrap(), Redis::start().unwrap());
    let url = format!("{}?{STRICT}", one.url());
    excludes(&url, LONGEST, async || {
        // The other server has the mark of this one's run, and not the grant.
        let key = "clinch:app:epoch";
        let mark = one.cli(&["EVAL", HEX, "1", key]).unwrap();
        other.cli(&["EVAL", UNHEX, "1", key, &mark]).unwrap();
        there_and_back(&one, &other).await;
        assert_eq!(one.cli(&["EVAL", HEX, "1", key]).unwrap(), mark);
    })
    .await;
}

const HEX: &str = "return (string.gsub(redis.call('GET', KEYS[1]), '.', function(c) return string.format('%02x', string.byte(c)) end))";
const UNHEX: &str = "return redis.call('SET', KEYS[1], (string.gsub(ARGV[1], '..', function(h) return string.char(tonumber(h, 16)) end)))";

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_waits_at_first_and_says_so() {
    let redis = Redis::start().unwrap();
    let a = client(&format!("{}?{STRICT}", redis.url())).await.unwrap();
    let started = a.clock().now();
    let found = async |text: &str| {
        let findings = a.doctor().await.unwrap();
        let found = findings
            .iter()
            .find(|finding| finding.message.contains(text));
        found.map(|finding| finding.severity)
    };
    let first = "grants open 6s after the first request";
    assert_eq!(found(first).await, Some(Severity::Warning));
    assert!(
        a.lock("x")
            .lease(LONGEST)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let opening = a.doctor().await.unwrap();
    let seconds = opening.iter().find_map(|finding| {
        let (_, rest) = finding.message.split_once("grants open in ")?;
        rest.split_once(" s")?.0.parse::<u64>().ok()
    });
    assert!(
        seconds.is_some_and(|seconds| (1..=7).contains(&seconds)),
        "{opening:?}"
    );
    let guard = soon("a grant", a.lock("x").lease(LONGEST).acquire())
        .await
        .unwrap();
    assert!(a.clock().now().since(started) >= LONGEST);
    assert_eq!(found("grants are open").await, Some(Severity::Ok));
    // From now on nothing is in the way, for other clients neither.
    guard.release().await.unwrap();
    let b = client(&format!("{}?{STRICT}", redis.url())).await.unwrap();
    assert!(
        b.lock("x")
            .lease(LONGEST)
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

/// A restart that kept the data: what is held stays held and renewed, all else waits.
#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_keeps_the_holds_that_survive() {
    let redis = Redis::with().append_only("always").start().unwrap();
    let url = format!("{}?{STRICT}", redis.url());
    let a = client(&url).await.unwrap();
    let held = soon("a grant", a.lock("x").lease(LONGEST).acquire())
        .await
        .unwrap();
    redis.start_again().unwrap();
    let restarted = a.clock().now();
    assert!(
        a.lock("y")
            .lease(LONGEST)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let other = soon("a grant", a.lock("y").lease(LONGEST).acquire())
        .await
        .unwrap();
    assert!(a.clock().now().since(restarted) >= LONGEST);
    assert!(held.is_valid(), "it was not renewed through the pause");
    assert!(held.token() < other.token());
}

/// The clock of the server is set back in the pause: it starts anew, and does not become endless.
#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_outlives_a_clock_that_is_set_back() {
    let redis = Redis::with().clock_shim().start().unwrap();
    let a = client(&format!("{}?{STRICT}", redis.url())).await.unwrap();
    assert!(
        a.lock("x")
            .lease(LONGEST)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    redis
        .step_clock(Duration::from_secs(3600), Step::Back)
        .unwrap();
    let before = a.clock().now();
    let guard = soon("a grant", a.lock("x").lease(LONGEST).acquire()).await;
    assert!(guard.unwrap().is_valid());
    assert!(a.clock().now().since(before) >= LONGEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_refuses_what_would_break_it() {
    let redis = Redis::start().unwrap();
    let a = client(&format!("{}?{STRICT}", redis.url())).await.unwrap();
    assert_eq!(a.info().limits.max_lease, LONGEST);
    let sent = a.operations();
    let second = Duration::from_secs(1);
    for lock in [
        a.lock("x").lease(LONGEST + second),
        a.lock("x").lease(LONGEST).lock_delay(second),
    ] {
        assert_eq!(
            lock.try_acquire().await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    assert_eq!(a.operations(), sent, "it was refused by the server");
    a.lock("x").lease(LONGEST).try_acquire().await.unwrap();
    // Another pause than the others have would be too short for one of them.
    let other = format!("{}?durability=strict&longest=5s", redis.url());
    let b = client(&other).await.unwrap();
    let refused = b.lock("x").lease(second).try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    assert!(refused.to_string().contains("longest=6000ms"), "{refused}");
    // Clients without it grant in the pause; the doctor sees them.
    let careless = client(&redis.url()).await.unwrap();
    let findings = careless.doctor().await.unwrap();
    let broken = findings.iter().find(|f| f.severity == Severity::Broken);
    assert!(broken.unwrap().message.contains("durability=strict"));
    for more in ["&eviction=accept", "&longest=1ms"] {
        let url = format!("{}?durability=strict{more}", redis.url());
        assert_eq!(client(&url).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
