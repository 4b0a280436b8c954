//! What is accepted, refused and found when a store is opened.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::ErrorKind;
use clinch_core::store::{Finding, Severity};
use clinch_testkit::servers::ZooKeeper;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, hold, operations, room, shared};

async fn refusal(url: &str) -> clinch_core::Error {
    let error = Client::refusal(url).await;
    assert_eq!(error.store(), Some("zookeeper"), "{error}");
    error
}

#[tokio::test]
async fn a_missing_server_is_unreachable_in_bounded_time() {
    let error = soon("the error", refusal("zookeeper://127.0.0.1:1?timeout=1s")).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(!error.may_have_taken_effect(), "{error}");
}

/// Leases that the ensemble's sessions cannot carry are refused before anything is sent.
#[tokio::test]
async fn leases_beyond_the_longest_session_are_refused() {
    let server = ZooKeeper::with()
        .config("maxSessionTimeout", "8000")
        .start()
        .unwrap();
    let client = Client::at(&room(&server.url(), "short")).await;
    let limits = client.store.info().limits;
    assert!(limits.max_lease < Duration::from_secs(8));
    assert!(limits.max_lease > Duration::from_secs(6));
    let before = operations(&client);
    let mut long = client.mutex("a", Duration::from_secs(8));
    let error = client.store.claim(&long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("8s"), "{error}");
    assert!(error.advice().unwrap().contains("maxSessionTimeout"));
    // The same for a lock-delay that does not fit on top.
    long.lease = Duration::from_secs(4);
    long.lock_delay = Duration::from_secs(5);
    let error = client.store.claim(&long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(operations(&client), before, "nothing was sent");
    let fits = client.mutex("a", limits.max_lease);
    client.granted(&fits).await;
}

/// With `acl=creator-all` no other user can write a lock or read it.
#[tokio::test]
async fn nodes_of_a_user_are_closed_to_others() {
    let base = shared().url();
    let url = base.replace("//", "//me:s3cret@");
    let mine = Client::at(&format!("{url}/private?tick=200ms&acl=creator-all")).await;
    let claim = mine.mutex("a", LONG);
    let grant = mine.granted(&claim).await;
    mine.until("a", 1, 0).await;
    let stranger = Client::open(&room(&base, "private")).await;
    let error = match stranger {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let wrong = base.replace("//", "//me:wrong@");
    let error = refusal(&format!("{wrong}/private?acl=creator-all")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(
        !format!("{error:?}").contains("wrong"),
        "a password in an error"
    );
    mine.store.release(&hold(&claim, &grant)).await.unwrap();
}

/// A server with a list of users accepts only those that prove their password. Nodes belong to the user,
/// whatever the connection.
#[cfg(feature = "sasl")]
#[tokio::test]
async fn users_log_in_by_sasl() {
    let server = ZooKeeper::with()
        .sasl_user("me", "s3cret")
        .property("zookeeper.sessionRequireClientSASLAuth", "true")
        .start()
        .unwrap();
    let url = |login: &str| {
        let base = server.url().replace("//", &format!("//{login}"));
        format!("{base}/private?tick=200ms&timeout=3s")
    };
    let known = format!("{}&auth=sasl&acl=creator-all", url("me:s3cret@"));
    let (one, two) = (Client::at(&known).await, Client::at(&known).await);
    let claim = one.mutex("a", LONG);
    let grant = one.granted(&claim).await;
    two.until("a", 1, 0).await;
    // It logs in again after each reconnect.
    server.kill().unwrap();
    server.start_again().unwrap();
    soon("the release", async {
        while let Err(error) = one.store.release(&hold(&claim, &grant)).await {
            assert!(error.is_temporary(), "{error}");
        }
    })
    .await;
    for (login, auth) in [
        ("me:wr0ng@", "&auth=sasl"),
        ("you:s3cret@", "&auth=sasl"),
        ("", ""),
    ] {
        let error = refusal(&format!("{}{auth}", url(login))).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{login}{auth}: {error}");
        let text = format!("{error:?}");
        assert!(
            !text.contains("wr0ng") && !text.contains("s3cret"),
            "{text}"
        );
    }
}

/// A connection fails if the server's certificate is not signed by the authority, if the client has no
/// certificate, and if it is not encrypted.
#[cfg(feature = "tls")]
#[tokio::test]
async fn encrypted() {
    let server = ZooKeeper::with().tls().start().unwrap();
    let files = server.certificates().unwrap();
    let url = server.tls_url().unwrap().replace("127.0.0.1", "localhost");
    let plain = format!("{url}/secret?tick=200ms");
    let trusting = |ca: &std::path::Path| format!("{plain}&tls=on&ca={}", ca.display());
    let (cert, key) = (files.client_certificate(), files.client_key());
    let own = format!("&cert={}&key={}", cert.display(), key.display());
    let known = format!("{}{own}", trusting(files.ca_file()));
    let (one, two) = (
        Client::at(&format!("{known}&timeout=30s")).await,
        Client::at(&room(&server.url(), "secret")).await,
    );
    let claim = one.mutex("a", LONG);
    let grant = one.granted(&claim).await;
    two.until("a", 1, 0).await;
    one.store.release(&hold(&claim, &grant)).await.unwrap();
    let findings = one.store.doctor().await.unwrap();
    assert_eq!(severity(&findings, "tick"), Severity::Warning);
    let anybody = trusting(files.ca_file());
    // The client's certificate is no authority that could have signed the server's.
    let mistrusting = format!("{}{own}", trusting(cert));
    for url in [anybody, mistrusting, plain.clone()] {
        let error = refusal(&format!("{url}&timeout=1s")).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{url}: {error}");
    }
    let missing = refusal(&trusting(std::path::Path::new("/nowhere/ca.pem"))).await;
    assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
}

fn severity(findings: &[Finding], subject: &str) -> Severity {
    let found = findings.iter().filter(|finding| finding.subject == subject);
    found.map(|finding| finding.severity).max().unwrap()
}

#[tokio::test]
async fn doctor_sees_ticks_sessions_and_the_size_of_the_ensemble() {
    let client = Client::at(&room(&shared().url(), "doctor")).await;
    let findings = client.store.doctor().await.unwrap();
    for subject in ["latency", "sessions", "server", "tick"] {
        let text = format!("{subject}: {findings:?}");
        assert!(severity(&findings, subject) <= Severity::Warning, "{text}");
    }
    assert_eq!(severity(&findings, "tick"), Severity::Ok);
    assert_eq!(
        severity(&findings, "ensemble"),
        Severity::Warning,
        "one server"
    );
    // A tick that is shorter than the servers' breaks a promise.
    let hasty = Client::at(&format!("{}/doctor?tick=50ms", shared().url())).await;
    let findings = hasty.store.doctor().await.unwrap();
    assert_eq!(severity(&findings, "tick"), Severity::Broken);
    // Sessions that are too short for the default lease cause a warning.
    let short = ZooKeeper::with()
        .config("maxSessionTimeout", "8000")
        .start()
        .unwrap();
    let client = Client::at(&room(&short.url(), "doctor")).await;
    let findings = client.store.doctor().await.unwrap();
    assert_eq!(severity(&findings, "sessions"), Severity::Warning);
}

/// Empty folders of locks, of the namespace and of the path are removed by the servers.
#[tokio::test]
async fn nothing_stays_behind_for_a_lock_that_was_used() {
    let server = ZooKeeper::with()
        .property("znode.container.checkIntervalMs", "200")
        .start()
        .unwrap();
    let client = Client::at(&room(&server.url(), "gone")).await;
    let nodes = || {
        server.counters().unwrap()["zk_znode_count"]
            .parse::<u64>()
            .unwrap()
    };
    let before = nodes();
    for n in 0..50 {
        client.warm_up(&format!("used/{n}"), LONG).await;
    }
    assert!(nodes() > before);
    // The folder of the namespace may go as well.
    eventually("the folders have gone", async || nodes() <= before).await;
    // And a lock in a folder that went works as ever.
    client.warm_up("used/1", LONG).await;
}

/// A closed store leaves neither sessions nor nodes.
#[tokio::test]
async fn a_closed_store_ends_its_sessions() {
    let server = ZooKeeper::start().unwrap();
    let client = Client::at(&room(&server.url(), "closing")).await;
    let claim = client.mutex("a", LONG);
    client.granted(&claim).await;
    let other = client.mutex("b", LONG * 2);
    client.granted(&other).await;
    assert_eq!(
        (server.sessions().unwrap(), server.ephemerals().unwrap()),
        (3, 2)
    );
    client.store.close().await.unwrap();
    eventually("no session is left", async || {
        server.sessions().unwrap() == 0
    })
    .await;
    assert_eq!(server.ephemerals().unwrap(), 0);
    let late = client.mutex("c", LONG);
    let error = client.store.claim(&late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    client.store.withdraw(&claim).await.unwrap();
    // A dropped one does the same.
    let client = Client::at(&room(&server.url(), "dropping")).await;
    client.granted(&client.mutex("a", LONG)).await;
    drop(client);
    eventually("no session is left", async || {
        server.sessions().unwrap() == 0
    })
    .await;
}
