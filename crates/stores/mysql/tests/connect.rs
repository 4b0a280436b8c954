//! URLs, users, tables and servers that are accepted, and those that are not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_core::ErrorKind;
use clinch_core::store::Severity;
use clinch_testkit::servers::{MariaDb, Port, on_free_port};
use common::{Client, LONG, hold};

#[tokio::test]
async fn wrong_urls_are_refused_with_a_reason() {
    for (url, reason) in [
        ("mysql:host", "has no //"),
        ("mysql://host", "database is missing"),
        ("mysql://host/db?pol=8", "no parameter \"pol\""),
        ("mysql://host/db?pool=1", "between 2 and 512"),
        ("mysql://host/db?tls=maybe", "tls=maybe is not known"),
        ("mysql://host/db?ca=/x", "need an encrypted connection"),
        ("mysql://host/db?tls=on&cert=/x", "given together"),
        ("mysql://host:port/db", "is not a host"),
        ("mysql://host/db?timeout=0s", "timeout must be above 0"),
    ] {
        let opened = Client::open(url).await;
        let error = opened.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        let text = error.to_string();
        assert!(
            text.contains(reason) && text.starts_with("mysql:"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn wrong_passwords_and_databases_are_refused_and_not_shown() {
    let server = MariaDb::start().unwrap();
    let error = Client::refusal(&server.url_as("clinch", "hunter2")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let url = format!("mysql://clinch:secret@127.0.0.1:{}/nowhere", server.port());
    assert_eq!(Client::refusal(&url).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_user_without_rights_gets_advice_and_then_needs_few() {
    let server = MariaDb::start().unwrap();
    let error = Client::refusal(&server.limited_url()).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("--print-schema"), "{error}");
    server.sql(&clinch_mysql::schema()).unwrap();
    let client = Client::open(&server.limited_url()).await.unwrap();
    let other = Client::open(&server.limited_url()).await.unwrap();
    let first = client.mutex("a", LONG);
    let grant = client.granted(&first).await;
    let second = other.mutex("a", LONG);
    other.queued(&second).await;
    let mut wakes = other.store.wakes(&second);
    client.store.release(&hold(&first, &grant)).await.unwrap();
    // Waiting needs no more rights.
    let wake = clinch_testkit::wait::soon("the wake", wakes.next()).await;
    assert!(
        matches!(wake, Some(clinch_core::store::Wake::Granted(_))),
        "{wake:?}"
    );
    client.store.events("").await.unwrap();
    let findings = client.store.doctor().await.unwrap();
    assert!(findings.iter().all(|f| f.severity != Severity::Broken));
}

#[tokio::test]
async fn tables_of_a_newer_clinch_are_left_untouched() {
    let server = MariaDb::start().unwrap();
    drop(Client::at(&server).await);
    server
        .sql("UPDATE clinch_meta SET version = 3 WHERE ns = ''")
        .unwrap();
    let error = Client::refusal(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("newer clinch"), "{error}");
}

#[tokio::test]
async fn tables_of_the_version_before_are_taken_over() {
    let server = MariaDb::start().unwrap();
    drop(Client::at(&server).await);
    let version = "version FROM clinch_meta WHERE ns = ''";
    server
        .sql("UPDATE clinch_meta SET version = 1 WHERE ns = ''")
        .unwrap();
    let client = Client::open(&server.limited_url()).await.unwrap();
    client.granted(&client.mutex("a", LONG)).await;
    let now = server.sql(&format!("SELECT {version}")).unwrap();
    assert_eq!(now.trim(), "2");
}

#[tokio::test]
async fn many_who_open_an_empty_database_make_one_schema() {
    let server = MariaDb::start().unwrap();
    let url = server.url();
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { Client::open(&url).await.map(drop) })
        })
        .collect();
    for task in opening {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let server = MariaDb::start().unwrap();
    server.sql("SET GLOBAL read_only = 1").unwrap();
    let error = Client::refusal(&server.limited_url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
}

/// A node of a cluster of its own, in which every node takes writes.
fn one_of_many() -> MariaDb {
    if MariaDb::is_mysql() {
        let server = MariaDb::with()
            .option("plugin-load-add", "group_replication.so")
            .option(
                "group-replication-group-name",
                "11111111-2222-3333-4444-555555555555",
            )
            .option("group-replication-single-primary-mode", "OFF")
            .option("group-replication-start-on-boot", "OFF");
        return server.start().unwrap();
    }
    let start = |port: Port| {
        let listens = format!("tcp://127.0.0.1:{}", port.number());
        MariaDb::with()
            .option("wsrep-on", "ON")
            .option("wsrep-provider", "/usr/lib/galera/libgalera_smm.so")
            .option("wsrep-cluster-address", "gcomm://")
            .option("wsrep-node-address", "127.0.0.1")
            .option(
                "wsrep-provider-options",
                &format!("gmcast.listen_addr={listens};gcache.size=1M"),
            )
            .option("binlog-format", "ROW")
            .option("innodb-autoinc-lock-mode", "2")
            .start()
    };
    on_free_port(start).unwrap()
}

/// Galera; and, where the tests run on MySQL, group replication with several primaries.
#[tokio::test]
async fn a_node_among_many_that_write_is_refused() {
    let server = one_of_many();
    let error = Client::refusal(&server.limited_url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let reason = match MariaDb::is_mysql() {
        true => "several primaries",
        false => "Galera",
    };
    assert!(error.to_string().contains(reason), "{error}");
}

#[tokio::test]
async fn doctor_tells_of_settings_that_lose_grants() {
    let server = MariaDb::with()
        .option("max-connections", "24")
        .start()
        .unwrap();
    let client = Client::at(&server).await;
    server
        .sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        .unwrap();
    server
        .sql("ALTER TABLE clinch_events ENGINE=MyISAM")
        .unwrap();
    let findings = client.store.doctor().await.unwrap();
    let of = |subject: &str| {
        let found = findings.iter().find(|f| f.subject == subject);
        found.map(|f| f.severity)
    };
    assert_eq!(of("durability"), Some(Severity::Warning));
    assert_eq!(of("tables"), Some(Severity::Broken));
    assert_eq!(of("connections"), Some(Severity::Ok));
    assert_eq!(of("server"), Some(Severity::Ok));
}

#[tokio::test]
async fn by_a_socket_file() {
    let server = MariaDb::start().unwrap();
    let url = format!("{}?socket={}", server.url(), server.socket().display());
    let client = Client::open(&url).await.unwrap();
    client.granted(&client.mutex("a", LONG)).await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn encrypted_and_checked() {
    let server = MariaDb::with().tls().start().unwrap();
    let plain = Client::refusal(&server.url()).await;
    assert_eq!(plain.kind(), ErrorKind::Denied, "{plain}");
    let ca = server.ca_file().unwrap().display().to_string();
    for tls in ["on", "verify-full", "verify-ca"] {
        let url = format!("{}?tls={tls}&ca={ca}", server.url());
        let client = Client::open(&url).await.unwrap();
        client.granted(&client.mutex(tls, LONG)).await;
    }
    // Without its authority the server is a stranger.
    let stranger = Client::refusal(&format!("{}?tls=on", server.url())).await;
    assert_eq!(stranger.kind(), ErrorKind::Unreachable, "{stranger}");
    let client = Client::open(&format!("{}?tls=unverified", server.url()))
        .await
        .unwrap();
    client.granted(&client.mutex("b", LONG)).await;
}
