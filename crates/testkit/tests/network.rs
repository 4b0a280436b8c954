//! Private networks and small disks. If this process cannot make them, the tests are listed as
//! ignored, with the reason.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clinch_core::Result;
use clinch_testkit::servers::{
    Builder, Disk, Engine, Ensemble, Etcd, EtcdCluster, Folder, Host, MariaDb, Network, Redis,
    ZooKeeper,
};
use clinch_testkit::wait::PATIENCE;
use libtest_mimic::{Arguments, Completion, Trial};

/// With this variable, the executable makes a network and a disk and waits until it is killed.
const CHILD: &str = "CLINCH_TESTKIT_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let network = |name, test: fn()| trial(name, Network::check, test);
    let disk = |name, test: fn()| trial(name, Disk::check, test);
    let trials = vec![
        network("nothing_is_left_of_a_network", nothing_is_left_of_a_network),
        network(
            "a_killed_process_leaves_nothing",
            a_killed_process_leaves_nothing,
        ),
        network(
            "what_was_sent_to_a_host_that_is_cut_off_arrives_later",
            arrives_later,
        ),
        network("every_engine_runs_on_a_host", every_engine_runs_on_a_host),
        network(
            "hosts_of_two_groups_do_not_meet",
            hosts_of_two_groups_do_not_meet,
        ),
        network(
            "etcd_goes_on_without_a_leader_that_clients_reach",
            etcd_goes_on,
        ),
        network("zookeeper_goes_on_without_its_leader", zookeeper_goes_on),
        disk("a_full_disk_is_freed", a_full_disk_is_freed),
        disk("redis_comes_back_from_a_full_disk", redis_comes_back),
        disk("etcd_comes_back_from_a_full_disk", etcd_comes_back),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, check: fn() -> Result<()>, test: fn()) -> Trial {
    Trial::ignorable_test(name, move || match check() {
        Err(why) => Ok(Completion::ignored_with(why.to_string())),
        Ok(()) => {
            test();
            Ok(Completion::Completed)
        }
    })
}

/// What `ip` and the kernel show of a network with this address, and of folders.
fn is_seen(address: &str) -> bool {
    let shown = Command::new("ip").args(["-4", "route"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap().contains(address)
}

fn namespaces(pid: u32) -> usize {
    let begins = format!("clinch-testkit-{pid}-");
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&begins)).count()
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(path.to_str().unwrap())
}

fn nothing_is_left_of_a_network() {
    let network = Network::start(2).unwrap();
    let address = network.host(0).unwrap().address().to_string();
    let redis = Redis::with()
        .on_host(network.host(1).unwrap())
        .start()
        .unwrap();
    // The block of addresses is a route of this machine.
    let range = address.rsplit_once('.').unwrap().0.to_owned();
    assert!(is_seen(&range) && network.host(2).is_err());
    drop(network);
    assert!(is_seen(&range), "a server still uses it");
    drop(redis);
    assert!(!is_seen(&range));
    assert!(Network::start(Network::MOST + 1).is_err());
}

/// Run by the next test in another process.
fn child() -> ExitCode {
    let network = Network::start(1).unwrap();
    let folder = Folder::new("test").unwrap();
    let disk = Disk::mount(&folder, "small", 1).unwrap();
    println!(
        "{} {}",
        network.host(0).unwrap().address(),
        disk.path().display()
    );
    loop {
        std::thread::park();
    }
}

fn a_killed_process_leaves_nothing() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let (address, disk) = line.trim().split_once(' ').unwrap();
    let range = address.rsplit_once('.').unwrap().0;
    assert!(is_seen(range) && is_mounted(Path::new(disk)));
    let pid = child.id();
    assert_eq!(namespaces(pid), 2);
    // The network of a running process stays.
    drop(Network::start(1).unwrap());
    assert_eq!(namespaces(pid), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    // Several processes find it at once; each goes on when it has been removed.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _network = Network::start(1).unwrap();
                assert_eq!(namespaces(pid), 0);
                assert!(!is_seen(range));
            });
        }
    });
    Folder::sweep();
    assert!(!is_mounted(Path::new(disk)) && !Path::new(disk).exists());
}

fn arrives_later() {
    let network = Network::start(1).unwrap();
    let host = network.host(0).unwrap();
    let redis = Redis::with().on_host(host).start().unwrap();
    let mut client = TcpStream::connect((host.address(), redis.port())).unwrap();
    client.write_all(b"SET a 1\r\n").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    network.cut(host).unwrap();
    client.write_all(b"SET a 2\r\n").unwrap();
    let silence = Some(Duration::from_millis(200));
    client.set_read_timeout(silence).unwrap();
    assert!(client.read(&mut [0; 5]).is_err());
    assert_eq!(redis.cli(&["GET", "a"]).unwrap(), "1");
    network.heal().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(redis.cli(&["GET", "a"]).unwrap(), "2");
}

fn every_engine_runs_on_a_host() {
    fn check<E: Engine>(setup: Builder<E>, host: &Host) {
        let server = setup.on_host(host).start().unwrap();
        let address = server.socket_address();
        assert_eq!(address.ip(), host.address());
        assert!(server.url().contains(&address.to_string()));
        TcpStream::connect(address).unwrap();
    }
    let network = Network::start(1).unwrap();
    let host = network.host(0).unwrap();
    check(Redis::with(), host);
    check(MariaDb::with(), host);
    check(Etcd::with(), host);
    check(ZooKeeper::with(), host);
}

fn hosts_of_two_groups_do_not_meet() {
    let network = Network::start(3).unwrap();
    let servers: Vec<_> = network
        .hosts()
        .iter()
        .map(|host| Redis::with().on_host(host).start().unwrap())
        .collect();
    // MIGRATE makes one server connect to another; its reply shows whether it could.
    let meets = |from: usize, to: usize| {
        servers[from].cli(&["SET", "k", "1"]).unwrap();
        servers[to].cli(&["DEL", "k"]).unwrap();
        let (host, port) = (
            servers[to].address().to_string(),
            servers[to].port().to_string(),
        );
        servers[from]
            .cli(&["MIGRATE", &host, &port, "k", "0", "300"])
            .is_ok()
    };
    let reached = |server: usize| {
        TcpStream::connect((servers[server].address(), servers[server].port())).is_ok()
    };
    assert!(meets(0, 1) && meets(1, 2));
    let (one, others) = network.hosts().split_at(1);
    network.divide(&[one, others]).unwrap();
    assert!(!meets(0, 1) && !meets(1, 0) && !meets(2, 0));
    assert!(meets(1, 2) && meets(2, 1));
    assert!((0..3).all(reached), "clients reach all");
    network.heal().unwrap();
    assert!(meets(0, 1) && meets(2, 0));
}

fn etcd_goes_on() {
    let network = Network::start(3).unwrap();
    assert!(EtcdCluster::start_across(&network.hosts()[..2]).is_err());
    let cluster = EtcdCluster::start_across(network.hosts()).unwrap();
    cluster.ctl(&["put", "a", "1"]).unwrap();
    let old = cluster.leader().unwrap();
    isolate(&network, old);
    let new = cluster.wait_for_new_leader(old).unwrap();
    let (cut, going) = (&cluster.members()[old], &cluster.members()[new]);
    going.ctl(&["put", "a", "2"]).unwrap();
    let stale = cut.ctl(&["get", "a", "--consistency=s"]).unwrap();
    assert_eq!(stale, "a\n1", "clients reach it");
    network.heal().unwrap();
    cluster.wait_ok().unwrap();
    assert_eq!(cut.ctl(&["get", "a"]).unwrap(), "a\n2");
}

fn zookeeper_goes_on() {
    let network = Network::start(3).unwrap();
    let ensemble = Ensemble::start_across(ZooKeeper::with(), network.hosts()).unwrap();
    let old = ensemble.leader().unwrap();
    isolate(&network, old);
    let new = ensemble.wait_for_new_leader(old).unwrap();
    assert_ne!(new, old);
    network.heal().unwrap();
    ensemble.servers()[old].wait_ready().unwrap();
    assert_eq!(ensemble.servers()[old].mode().as_deref(), Some("follower"));
}

/// Cuts a host off from the other hosts, but not from this process.
fn isolate(network: &Network, index: usize) {
    let mut others = network.hosts().to_vec();
    let one = others.remove(index);
    network.divide(&[&[one], &others]).unwrap();
}

fn a_full_disk_is_freed() {
    let folder = Folder::new("test").unwrap();
    let disk = Disk::mount(&folder, "small", 1).unwrap();
    let write = |name: &str| std::fs::write(disk.path().join(name), [0; 5_000]);
    write("a").unwrap();
    disk.fill().unwrap();
    assert!(write("b").is_err());
    disk.free().unwrap();
    disk.free().unwrap();
    write("b").unwrap();
    let path = disk.path().to_owned();
    drop(disk);
    assert!(!is_mounted(&path) && !path.join("a").exists());
    // Removing a folder unmounts its disk.
    std::mem::forget(Disk::mount(&folder, "small", 1).unwrap());
    drop(folder);
    assert!(!is_mounted(&path) && !path.exists());
}

fn redis_comes_back() {
    let redis = Redis::with().append_only("always").disk(4).start().unwrap();
    redis.cli(&["SET", "a", "1"]).unwrap();
    redis.disk().unwrap().fill().unwrap();
    let big = "x".repeat(10_000);
    assert!(redis.cli(&["SET", "a", &big]).is_err());
    redis.disk().unwrap().free().unwrap();
    redis.start_again().unwrap();
    assert_eq!(redis.cli(&["GET", "a"]).unwrap(), "1");
    redis.start_empty().unwrap();
    assert_eq!(redis.cli(&["GET", "a"]).unwrap(), "");
}

fn etcd_comes_back() {
    let etcd = Etcd::with().disk(160).start().unwrap();
    etcd.ctl(&["put", "a", "1"]).unwrap();
    etcd.disk().unwrap().fill().unwrap();
    let big = "x".repeat(100_000);
    // Its log has room for a while; its database has none.
    let full = (0..20).any(|_| {
        etcd.ctl(&["--command-timeout=2s", "put", "b", &big])
            .is_err()
    });
    assert!(full, "it kept what there was no room for");
    etcd.disk().unwrap().free().unwrap();
    etcd.start_again().unwrap();
    assert_eq!(etcd.ctl(&["get", "a"]).unwrap(), "a\n1");
    etcd.ctl(&["put", "a", "2"]).unwrap();
}
