//! The servers of the kit, and Redis.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clinch_testkit::proxy::{Proxy, Then};
use clinch_testkit::servers::{Cluster, Redis, Sentinels, Step};
use clinch_testkit::wait::{PATIENCE, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// With this variable, the executable starts a server and waits until it is killed.
const CHILD: &str = "CLINCH_TESTKIT_CHILD";

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_keeps_its_data_if_configured_to() {
    let kept = |redis: &Redis| {
        redis.cli(&["SET", "a", "1"]).unwrap();
        redis.kill().unwrap();
        assert!(redis.cli(&["PING"]).is_err());
        let port = redis.port();
        redis.start_again().unwrap();
        assert_eq!(redis.port(), port);
        redis.cli(&["GET", "a"]).unwrap()
    };
    assert_eq!(kept(&Redis::start().unwrap()), "");
    let logged = Redis::with().append_only("always").start().unwrap();
    assert_eq!(kept(&logged), "1");
    logged.start_empty().unwrap();
    assert_eq!(logged.cli(&["GET", "a"]).unwrap(), "");
}

#[test]
fn nothing_is_left_of_a_dropped_server() {
    let redis = Redis::start().unwrap();
    let (pid, folder) = (redis.process().pid().unwrap(), redis.folder().to_owned());
    assert!(exists(pid) && folder.exists());
    drop(redis);
    assert!(!exists(pid) && !folder.exists());
}

#[test]
fn clients_need_the_authority_for_tls() {
    let redis = Redis::with().tls().password("x").start().unwrap();
    assert!(redis.url().starts_with("rediss://:x@127.0.0.1:"));
    let ca = redis.ca_file().unwrap().to_str().unwrap();
    let ping = |more: &[&str]| redis_cli(&redis, &[&["-a", "x", "--tls"], more].concat());
    assert_eq!(ping(&["--cacert", ca, "PING"]), "PONG");
    assert_ne!(ping(&["PING"]), "PONG");
    assert_ne!(redis_cli(&redis, &["-a", "x", "PING"]), "PONG");
    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
}

#[test]
fn servers_can_require_a_client_certificate() {
    let redis = Redis::with().tls_client_certificates().start().unwrap();
    let certificates = redis.certificates().unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let ca = text(certificates.ca_file());
    let (cert, key) = (
        text(certificates.client_certificate()),
        text(certificates.client_key()),
    );
    let with = [
        "--tls", "--cacert", &ca, "--cert", &cert, "--key", &key, "PING",
    ];
    assert_eq!(redis_cli(&redis, &with), "PONG");
    assert_ne!(
        redis_cli(&redis, &["--tls", "--cacert", &ca, "PING"]),
        "PONG"
    );
}

#[test]
fn a_server_without_a_port_is_reached_by_its_file() {
    let redis = Redis::with().unix_socket().start().unwrap();
    assert_eq!(redis.url(), redis.unix_url());
    let path = redis.url().replace("redis+unix://", "");
    assert_eq!(run("redis-cli", &["-s", &path, "PING"]), "PONG");
    assert!(TcpStream::connect(("127.0.0.1", redis.port())).is_err());
}

#[test]
fn users_have_their_rights() {
    let redis = Redis::with().user("app", "secret", "~app:* &* +@all -@dangerous");
    let redis = redis.start().unwrap();
    let url = redis.url_as("app", "secret");
    let app = |words: &[&str]| run("redis-cli", &[&["-u", &url], words].concat());
    assert_eq!(app(&["SET", "app:a", "1"]), "OK");
    assert!(app(&["SET", "b", "1"]).contains("NOPERM"));
    assert!(redis.cli(&["NOSUCH"]).is_err());
}

#[test]
fn the_wall_clock_moves() {
    let redis = Redis::with().clock_shim().start().unwrap();
    let time = || {
        redis.command(&["TIME"]).unwrap().texts()[0]
            .parse::<i64>()
            .unwrap()
    };
    let ours = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let ahead = || time() - i64::try_from(ours()).unwrap();
    assert!(ahead().abs() <= 1);
    redis
        .step_clock(Duration::from_secs(10), Step::Forward)
        .unwrap();
    assert!((9..=11).contains(&ahead()), "{}", ahead());
    redis
        .step_clock(Duration::from_secs(20), Step::Back)
        .unwrap();
    assert!((-11..=-9).contains(&ahead()), "{}", ahead());
    redis.start_again().unwrap();
    assert!((-11..=-9).contains(&ahead()), "{}", ahead());
    assert!(
        Redis::start()
            .unwrap()
            .step_clock(Duration::ZERO, Step::Back)
            .is_err()
    );
}

#[test]
fn commands_of_clients_are_counted() {
    let redis = Redis::start().unwrap();
    assert_eq!(redis.command_count().unwrap(), 0);
    let script = "for i = 1, 5 do redis.call('INCR', 'n') end return redis.call('GET', 'n')";
    assert_eq!(redis_cli(&redis, &["EVAL", script, "0"]), "5");
    redis.cli(&["SET", "a", "1"]).unwrap();
    assert_eq!(redis.command_count().unwrap(), 1);
    redis.start_again().unwrap();
    assert_eq!(redis_cli(&redis, &["GET", "n"]), "");
    assert_eq!(redis.command_count().unwrap(), 2);
}

#[test]
fn keys_are_shown_with_all_they_hold() {
    let redis = Redis::start().unwrap();
    redis.cli(&["HSET", "l:h", "a", "1"]).unwrap();
    redis.cli(&["ZADD", "l:z", "5", "x"]).unwrap();
    redis.cli(&["SET", "other", "1"]).unwrap();
    let keys = redis.dump_keys("l:*").unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys["l:h"], "hash [a 1] pttl -1");
    assert_eq!(keys["l:z"], "zset [x 5] pttl -1");
}

#[test]
fn a_paused_server_is_silent_and_whole() {
    let redis = Redis::start().unwrap();
    redis.cli(&["SET", "a", "1"]).unwrap();
    redis.pause().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    client.write_all(b"GET a\r\n").unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(150)))
        .unwrap();
    assert!(client.read(&mut [0]).is_err());
    redis.resume().unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut reply = [0; 7];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$1\r\n1\r\n");
}

#[test]
fn an_error_shows_the_log() {
    let error = Redis::with()
        .config("no-such-option", "1")
        .start()
        .unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn sentinels_replace_a_dead_master() {
    let all = Sentinels::start().unwrap();
    assert_eq!(all.url().matches("127.0.0.1:").count(), 3);
    let first = all.master().unwrap();
    first.cli(&["SET", "a", "1"]).unwrap();
    all.wait_synced().unwrap();
    let index = all.kill_master().unwrap();
    let second = all.wait_for_new_master(first.port()).unwrap();
    assert_eq!(second.cli(&["GET", "a"]).unwrap(), "1");
    second.cli(&["SET", "a", "2"]).unwrap();
    all.start_again(index).unwrap();
    all.wait_synced().unwrap();
    assert_eq!(first.cli(&["GET", "a"]).unwrap(), "2");
    assert!(
        first
            .cli(&["SET", "a", "3"])
            .unwrap_err()
            .message()
            .contains("READONLY")
    );
}

#[test]
fn sentinels_fail_over_on_demand() {
    let all = Sentinels::start().unwrap();
    let old = all.master().unwrap().port();
    let new = all.failover().unwrap().port();
    assert_ne!(new, old);
    all.wait_synced().unwrap();
    all.restart_sentinel(0).unwrap();
    assert_eq!(all.master().unwrap().port(), new);
}

#[test]
fn a_cluster_survives_a_master() {
    let cluster = Cluster::start().unwrap();
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    let master = cluster.node_of("a").unwrap();
    cluster
        .node(master)
        .unwrap()
        .cli(&["SET", "a", "1"])
        .unwrap();
    cluster.wait_synced().unwrap();
    cluster.kill(master).unwrap();
    cluster.wait_ok().unwrap();
    let heir = cluster.node_of("a").unwrap();
    assert_eq!(heir, master + 3);
    assert_eq!(cluster.node(heir).unwrap().cli(&["GET", "a"]).unwrap(), "1");
    cluster.start_again(master).unwrap();
    cluster.wait_ok().unwrap();
    cluster.wait_synced().unwrap();
    assert_eq!(cluster.node_of("a").unwrap(), heir);
}

#[test]
fn a_slot_moves_in_steps() {
    let cluster = Cluster::start().unwrap();
    let (slot, from) = (cluster.slot_of("a"), cluster.node_of("a").unwrap());
    let to = (from + 1) % 3;
    let at = |node: usize, words: &[&str]| cluster.node(node).unwrap().cli(words);
    at(from, &["SET", "a", "1"]).unwrap();
    at(from, &["SET", "{a}2", "2"]).unwrap();
    let migration = cluster.begin_migration(slot, from, to).unwrap();
    assert_eq!(migration.move_some(1).unwrap(), 1);
    // The keys are on two nodes: a request for both gets TRYAGAIN.
    let both = at(from, &["MGET", "a", "{a}2"]).unwrap_err();
    assert!(both.message().contains("TRYAGAIN"), "{both}");
    assert_eq!(cluster.node_of("a").unwrap(), from);
    migration.move_keys().unwrap();
    migration.finish().unwrap();
    assert_eq!(cluster.node_of("a").unwrap(), to);
    assert_eq!(at(to, &["MGET", "a", "{a}2"]).unwrap(), "1\n2");
    assert!(
        at(from, &["GET", "a"])
            .unwrap_err()
            .message()
            .contains("MOVED")
    );
    cluster.migrate_slot(slot, to, from).unwrap();
    assert_eq!(at(from, &["GET", "a"]).unwrap(), "1");
}

/// Run by the next test in another process.
#[test]
fn child_with_a_server() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let redis = Redis::start().unwrap();
    println!("\nserver {}", redis.process().pid().unwrap());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_test_process_leaves_no_server() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_a_server", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("server ").map(str::to_owned));
    let pid = pid.unwrap().parse().unwrap();
    assert!(exists(pid));
    child.kill().unwrap();
    child.wait().unwrap();
    let give_up = Instant::now() + PATIENCE;
    while exists(pid) {
        assert!(Instant::now() < give_up, "the server goes on");
        std::thread::yield_now();
    }
}

fn redis_cli(redis: &Redis, words: &[&str]) -> String {
    let port = redis.port().to_string();
    run("redis-cli", &[&["-p", &port], words].concat())
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn the_proxy_swallows_a_reply_and_no_push() {
    let redis = Redis::start().unwrap();
    let proxy = Proxy::before(&redis).await.unwrap();
    let mut client = tokio::net::TcpStream::connect(proxy.addr()).await.unwrap();
    let mut ask = async |request: &str, end: &str| {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(end.as_bytes()) {
            let byte = soon("the reply", client.read_u8()).await;
            seen.push(byte.unwrap());
        }
        String::from_utf8(seen).unwrap()
    };
    ask("HELLO 3\r\nSUBSCRIBE c\r\n", ":1\r\n").await;
    proxy.swallow(2, Then::Stay);
    // Its own message arrives as a push among the replies.
    let seen = ask("PUBLISH c m\r\nECHO lost\r\nECHO end\r\n", "end\r\n").await;
    assert!(
        seen.contains("$7\r\nmessage\r\n") && seen.contains(":1\r\n"),
        "{seen}"
    );
    assert!(!seen.contains("lost"), "{seen}");
}

/// A failover in the middle of a move can leave a key on both sides: its owner's copy stays.
#[test]
fn a_move_ends_with_a_key_on_both_sides() {
    let cluster = Cluster::start().unwrap();
    let (slot, from) = (cluster.slot_of("a"), cluster.node_of("a").unwrap());
    let to = (from + 1) % 3;
    let (owner, importer) = (cluster.node(from).unwrap(), cluster.node(to).unwrap());
    owner.cli(&["SET", "a", "of the owner"]).unwrap();
    let _half_moved = cluster.begin_migration(slot, from, to).unwrap();
    importer
        .importing(&["SET", "a", "of the importer"])
        .unwrap();
    assert_eq!(cluster.end_moves().unwrap(), [slot]);
    assert_eq!(owner.cli(&["GET", "a"]).unwrap(), "of the owner");
    assert!(cluster.end_moves().unwrap().is_empty());
}
