//! The servers of the kit, each for real.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use clinch_testkit::servers::Redis;

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_keeps_what_it_is_told_to_keep() {
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
