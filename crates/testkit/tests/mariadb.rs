//! The MariaDB server of the kit.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clinch_testkit::proxy::{Proxy, Then};
use clinch_testkit::servers::{MariaDb, Step};
use clinch_testkit::wait::soon;

/// Runs a statement as a user, through the port; returns the output, with errors.
fn through_the_port(mariadb: &MariaDb, user: &str, more: &[&str], sql: &str) -> String {
    through_port(mariadb.port(), user, more, sql)
}

fn through_port(port: u16, user: &str, more: &[&str], sql: &str) -> String {
    let port = port.to_string();
    let output = Command::new("mariadb")
        .args(["--no-defaults", "-BN", "-h", "127.0.0.1", "-P", &port])
        .args(["-u", user, "-psecret"])
        .args(more)
        .args(["clinch", "-e", sql])
        .output()
        .unwrap();
    let all = [output.stdout, output.stderr].concat();
    String::from_utf8(all).unwrap().trim().to_owned()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn commits_survive_a_kill() {
    let mariadb = MariaDb::start().unwrap();
    let (port, url) = (mariadb.port(), mariadb.url());
    assert_eq!(
        url,
        format!("mysql://clinch:secret@127.0.0.1:{port}/clinch")
    );
    mariadb
        .sql("CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1)")
        .unwrap();
    mariadb.kill().unwrap();
    assert!(mariadb.sql("SELECT 1").is_err());
    mariadb.start_again().unwrap();
    assert_eq!(mariadb.port(), port);
    assert_eq!(mariadb.sql("SELECT n FROM t").unwrap(), "1");
    mariadb.process().terminate().unwrap();
    mariadb.start_again().unwrap();
    assert_eq!(mariadb.sql("SELECT n FROM t").unwrap(), "1");
    mariadb.start_empty().unwrap();
    assert_eq!(mariadb.sql("SHOW TABLES").unwrap(), "");
}

#[test]
fn it_flushes_at_each_commit() {
    let mariadb = MariaDb::start().unwrap();
    let safe = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite";
    assert_eq!(mariadb.sql(safe).unwrap(), "1\t1");
}

#[test]
fn users_have_their_rights() {
    let mariadb = MariaDb::start().unwrap();
    let run = |user, sql| through_the_port(&mariadb, user, &[], sql);
    assert_eq!(run("clinch", "CREATE TABLE t (n INT)"), "");
    assert!(run("limited", "CREATE TABLE u (n INT)").contains("ERROR 1142"));
    let rows = "INSERT INTO t VALUES (1); UPDATE t SET n = 2; SELECT n FROM t; DELETE FROM t";
    assert_eq!(run("limited", rows), "2");
    assert!(run("nobody", "SELECT 1").contains("ERROR 1045"));
    assert!(mariadb.limited_url().contains("//limited:secret@"));
}

#[test]
fn clients_need_tls_if_required() {
    let mariadb = MariaDb::with().tls().start().unwrap();
    let ca = text(mariadb.ca_file().unwrap());
    let cipher = "SELECT variable_value <> '' FROM information_schema.session_status \
                  WHERE variable_name = 'Ssl_cipher'";
    let run = |more: &[&str]| through_the_port(&mariadb, "clinch", more, cipher);
    let trusted = ["--ssl-ca", &ca, "--ssl-verify-server-cert"];
    assert_eq!(run(&trusted), "1");
    assert!(run(&["--skip-ssl"]).contains("ERROR"));
    // Root uses the socket.
    assert_eq!(mariadb.sql("SELECT 1").unwrap(), "1");
}

#[test]
fn servers_can_require_a_client_certificate() {
    let mariadb = MariaDb::with().tls_client_certificates().start().unwrap();
    let certificates = mariadb.certificates().unwrap();
    let ca = text(certificates.ca_file());
    let cert = text(certificates.client_certificate());
    let key = text(certificates.client_key());
    let run = |more: &[&str]| through_the_port(&mariadb, "clinch", more, "SELECT 1");
    let with = ["--ssl-ca", &ca, "--ssl-cert", &cert, "--ssl-key", &key];
    assert_eq!(run(&with), "1");
    assert!(run(&["--ssl-ca", &ca]).contains("ERROR 1045"));
}

#[test]
fn the_wall_clock_moves_and_waits_do_not() {
    let mariadb = MariaDb::with().clock_shim().start().unwrap();
    // Between two looks at our own clock, so that a busy machine makes no difference.
    let is_ahead_by = |seconds: i64| {
        let ours = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            i64::try_from(now.as_secs()).unwrap() + seconds
        };
        let before = ours();
        let theirs = mariadb.sql("SELECT UNIX_TIMESTAMP()").unwrap();
        let theirs = theirs.parse::<i64>().unwrap();
        let range = before - 1..=ours() + 1;
        assert!(range.contains(&theirs), "{theirs} is not in {range:?}");
    };
    let wait = || {
        let start = Instant::now();
        mariadb.sql("SELECT SLEEP(0.2)").unwrap();
        start.elapsed()
    };
    is_ahead_by(0);
    let step = |seconds, way| mariadb.step_clock(Duration::from_secs(seconds), way);
    step(1_000, Step::Forward).unwrap();
    is_ahead_by(1_000);
    assert!(wait() >= Duration::from_millis(200));
    step(2_000, Step::Back).unwrap();
    is_ahead_by(-1_000);
    assert!(wait() >= Duration::from_millis(200));
    mariadb.start_again().unwrap();
    is_ahead_by(-1_000);
    let plain = MariaDb::start().unwrap();
    assert!(plain.step_clock(Duration::ZERO, Step::Back).is_err());
}

#[test]
fn statements_are_counted() {
    let mariadb = MariaDb::start().unwrap();
    mariadb.sql("CREATE TABLE t (n INT)").unwrap();
    let before = mariadb.status("Com_insert").unwrap();
    for _ in 0..3 {
        through_the_port(&mariadb, "clinch", &[], "INSERT INTO t VALUES (1)");
    }
    assert_eq!(mariadb.status("Com_insert").unwrap(), before + 3);
    assert_eq!(mariadb.status("Innodb_deadlocks").unwrap(), 0);
    assert!(mariadb.status("No_such_counter").is_err());
}

#[test]
fn connections_are_killed() {
    let mariadb = MariaDb::start().unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| through_the_port(&mariadb, "clinch", &[], "SELECT SLEEP(60)"));
        // It may be killed before it is counted, while it logs in.
        while mariadb.kill_connections().unwrap() == 0 && !sleeper.is_finished() {}
        let seen = sleeper.join().unwrap();
        assert!(seen.contains("ERROR"), "{seen}");
    });
}

#[test]
fn an_error_shows_the_log() {
    let error = MariaDb::with().option("no-such-option", "1").start();
    let error = error.unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn nothing_is_left_of_a_dropped_server() {
    let mariadb = MariaDb::start().unwrap();
    let pid = mariadb.process().pid().unwrap();
    let (folder, process) = (mariadb.folder().to_owned(), format!("/proc/{pid}"));
    assert!(folder.exists() && Path::new(&process).exists());
    drop(mariadb);
    assert!(!folder.exists() && !Path::new(&process).exists());
}

#[tokio::test]
async fn the_proxy_swallows_the_nth_reply() {
    let mariadb = MariaDb::start().unwrap();
    mariadb.sql("CREATE TABLE t (n INT)").unwrap();
    let proxy = Proxy::before(&mariadb).await.unwrap();
    let three = "INSERT INTO t VALUES (1); SELECT n FROM t; \
                 INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)";
    let port = proxy.addr().port();
    let run =
        || tokio::task::spawn_blocking(move || through_port(port, "clinch", &["-A", "-n"], three));
    proxy.swallow(3, Then::Reset);
    let seen = soon("the client's end", run()).await.unwrap();
    assert!(
        seen.starts_with("1\n") && seen.contains("ERROR 2013"),
        "{seen}"
    );
    assert_eq!(mariadb.sql("SELECT n FROM t").unwrap(), "1\n2");
    proxy.heal();
    soon("the client's end", run()).await.unwrap();
    assert_eq!(mariadb.sql("SELECT COUNT(*) FROM t").unwrap(), "5");
}
