//! The etcd servers of the kit.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::Command;

use clinch_testkit::proxy::{Proxy, Then};
use clinch_testkit::servers::{Etcd, EtcdCluster, Folder};
use clinch_testkit::wait::soon;

fn etcdctl(args: &[&str]) -> bool {
    let quick = ["--dial-timeout=1s", "--command-timeout=2s"];
    let run = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(quick)
        .args(args)
        .output();
    run.unwrap().status.success()
}

#[test]
fn writes_survive_a_kill() {
    let etcd = Etcd::start().unwrap();
    let port = etcd.port();
    assert_eq!(etcd.url(), format!("etcd://127.0.0.1:{port}"));
    etcd.ctl(&["put", "a", "1"]).unwrap();
    etcd.kill().unwrap();
    assert!(!etcd.is_running());
    etcd.start_again().unwrap();
    assert_eq!(etcd.port(), port);
    assert_eq!(etcd.ctl(&["get", "a"]).unwrap(), "a\n1");
    etcd.process().terminate().unwrap();
    etcd.start_empty().unwrap();
    assert_eq!(etcd.ctl(&["get", "a"]).unwrap(), "");
}

#[test]
fn the_shortest_lease_is_a_second() {
    let etcd = Etcd::start().unwrap();
    let granted = etcd.ctl(&["lease", "grant", "1"]).unwrap();
    assert!(granted.ends_with("TTL(1s)"), "{granted}");
    let cluster = EtcdCluster::start().unwrap();
    let granted = cluster.ctl(&["lease", "grant", "1"]).unwrap();
    assert!(granted.ends_with("TTL(1s)"), "{granted}");
}

#[test]
fn snapshots_and_compaction() {
    let (etcd, folder) = (Etcd::start().unwrap(), Folder::new("test").unwrap());
    let file = folder.path().join("snapshot");
    etcd.ctl(&["put", "a", "1"]).unwrap();
    etcd.ctl(&["snapshot", "save", file.to_str().unwrap()])
        .unwrap();
    etcd.ctl(&["put", "a", "2"]).unwrap();
    etcd.ctl(&["compact", "3"]).unwrap();
    let past = etcd.ctl(&["get", "a", "--rev=2"]).unwrap_err();
    assert!(past.message().contains("compacted"), "{past}");
    etcd.start_from(&file).unwrap();
    assert_eq!(etcd.ctl(&["get", "a", "--rev=2"]).unwrap(), "a\n1");
}

#[test]
fn users_have_their_rights() {
    let etcd = Etcd::with()
        .root_password("x")
        .user("app", "y", "app/")
        .start()
        .unwrap();
    let app = |args: &[&str]| etcd.ctl(&[&["--user=app:y"], args].concat());
    assert_eq!(app(&["put", "app/a", "1"]).unwrap(), "OK");
    let denied = app(&["put", "b", "1"]).unwrap_err();
    assert!(
        denied.message().contains("permission denied"),
        "{}",
        denied.message()
    );
    assert!(etcd.ctl(&["--user=app:z", "put", "app/a", "1"]).is_err());
    let endpoint = etcd.endpoint();
    assert!(!etcdctl(&["--endpoints", &endpoint, "get", "app/a"]));
    etcd.start_again().unwrap();
    assert!(!etcdctl(&["--endpoints", &endpoint, "get", "app/a"]));
    assert_eq!(etcd.ctl(&["get", "app/a"]).unwrap(), "app/a\n1");
    assert!(etcd.url_as("app", "y").contains("//app:y@127.0.0.1:"));
}

#[test]
fn clients_need_the_authority_for_tls_and_a_certificate_if_required() {
    for required in [false, true] {
        let setup = Etcd::with();
        let setup = match required {
            true => setup.tls_client_certificates(),
            false => setup.tls(),
        };
        let etcd = setup.start().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let files = etcd.certificates().unwrap();
        let (ca, cert) = (text(files.ca_file()), text(files.client_certificate()));
        let key = text(files.client_key());
        let endpoint = etcd.endpoint();
        assert!(endpoint.starts_with("https://"));
        let get = |more: &[&str]| {
            let args = [&["--endpoints", &endpoint], more, &["get", "a"]];
            etcdctl(&args.concat())
        };
        assert!(get(&["--cacert", &ca, "--cert", &cert, "--key", &key]));
        assert_eq!(get(&["--cacert", &ca]), !required);
        assert!(!get(&[]));
        assert_eq!(etcd.ctl(&["put", "a", "1"]).unwrap(), "OK");
    }
}

#[test]
fn requests_are_counted() {
    let etcd = Etcd::start().unwrap();
    let before = etcd.metrics().unwrap().requests();
    for _ in 0..3 {
        etcd.ctl(&["put", "a", "1"]).unwrap();
    }
    assert_eq!(etcd.metrics().unwrap().requests() - before, 3);
}

#[test]
fn a_cluster_survives_its_leader() {
    let cluster = EtcdCluster::start().unwrap();
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 3);
    assert_eq!(cluster.endpoints().len(), 3);
    cluster.ctl(&["put", "a", "1"]).unwrap();
    let first = cluster.leader().unwrap();
    cluster.member(first).unwrap().kill().unwrap();
    let second = cluster.leader().unwrap();
    assert_ne!(second, first);
    assert_eq!(cluster.ctl(&["get", "a"]).unwrap(), "a\n1");
    cluster.member(first).unwrap().start_again().unwrap();
    cluster.wait_ok().unwrap();
    // A paused leader is replaced, and steps down after it is resumed.
    let second = cluster.leader().unwrap();
    cluster.member(second).unwrap().pause().unwrap();
    let third = cluster.leader().unwrap();
    assert_ne!(third, second);
    cluster.member(second).unwrap().resume().unwrap();
    cluster.wait_ok().unwrap();
    assert_eq!(cluster.ctl(&["get", "a"]).unwrap(), "a\n1");
}

#[test]
fn one_of_three_does_nothing() {
    let cluster = EtcdCluster::start().unwrap();
    for index in [0, 1] {
        cluster.member(index).unwrap().kill().unwrap();
    }
    let last = cluster.member(2).unwrap();
    assert!(last.ctl(&["put", "a", "1"]).is_err());
    for index in [0, 1] {
        cluster.member(index).unwrap().start_again().unwrap();
    }
    cluster.wait_ok().unwrap();
    cluster.ctl(&["put", "a", "2"]).unwrap();
    assert_eq!(last.ctl(&["get", "a"]).unwrap(), "a\n2");
}

/// The others go on without it; after healing it has their writes.
#[test]
fn a_member_is_cut_off_while_the_others_go_on() {
    let cluster = EtcdCluster::start_divisible().unwrap();
    let old = cluster.leader().unwrap();
    cluster.ctl(&["put", "a", "1"]).unwrap();
    cluster.cut_off(old).unwrap();
    let new = cluster.wait_for_new_leader(old).unwrap();
    let (cut, going) = (cluster.member(old).unwrap(), cluster.member(new).unwrap());
    going.ctl(&["put", "a", "2"]).unwrap();
    assert!(cut.ctl(&["put", "a", "3"]).is_err());
    let stale = cut.ctl(&["get", "a", "--consistency=s"]).unwrap();
    assert_eq!(stale, "a\n1");
    cluster.heal().unwrap();
    assert_eq!(cut.ctl(&["get", "a"]).unwrap(), "a\n2");
    let whole = EtcdCluster::start().unwrap();
    assert!(whole.cut_off(0).is_err());
}

#[test]
fn a_cluster_has_one_authority_and_one_password() {
    let cluster =
        EtcdCluster::start_with(|member| member.tls_client_certificates().root_password("x"))
            .unwrap();
    for member in cluster.members() {
        assert_eq!(member.ctl(&["put", "a", "1"]).unwrap(), "OK");
    }
    assert_eq!(cluster.ctl(&["get", "a"]).unwrap(), "a\n1");
}

#[test]
fn an_error_shows_the_log() {
    let error = Etcd::with().option("heartbeat-interval", "900").start();
    let error = error.unwrap_err();
    assert!(error.to_string().contains("heartbeat-interval"), "{error}");
}

#[tokio::test]
async fn the_proxy_swallows_the_reply_of_a_call() {
    let etcd = Etcd::start().unwrap();
    let proxy = Proxy::before(&etcd).await.unwrap();
    let endpoint = format!("http://{}", proxy.addr());
    let put = |value: &'static str| {
        let endpoint = endpoint.clone();
        let run = move || etcdctl(&["--endpoints", &endpoint, "put", "a", value]);
        tokio::task::spawn_blocking(run)
    };
    assert!(soon("a put", put("1")).await.unwrap());
    proxy.swallow(1, Then::Silence);
    assert!(!soon("a put", put("2")).await.unwrap());
    assert_eq!(etcd.ctl(&["get", "a"]).unwrap(), "a\n2");
    proxy.heal();
    assert!(soon("a put", put("3")).await.unwrap());
    assert_eq!(etcd.ctl(&["get", "a"]).unwrap(), "a\n3");
}
