//! Connecting: logins, TLS, members, and clear one-line errors for what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it acts as a user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::store::Severity;
use clinch_core::{Error, ErrorKind};
use clinch_testkit::servers::{Etcd, EtcdCluster};
use clinch_testkit::wait::soon;
use common::{Client, LONG, clinch, until};

/// Acquires, waits for, inspects and releases locks: every kind of request.
async fn works(url: &str) {
    let (one, two) = (clinch(url).await, clinch(url).await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    until(&one, "a", 1, 1).await;
    let permit = one.semaphore("s", 2).acquire().await.unwrap();
    assert_eq!(one.list("").await.unwrap().len(), 2);
    permit.release().await.unwrap();
    guard.release().await.unwrap();
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(one.check(&next.sequencer()).await.unwrap().is_current());
    one.evict("a", None).await.unwrap();
    assert_eq!(one.list("").await.unwrap(), []);
}

/// The error for a URL that must be refused; it is one line.
async fn refusal(url: &str) -> Error {
    match Client::open(url).await {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(error.store(), Some("etcd"), "no store in {text}");
            error
        }
    }
}

#[tokio::test]
async fn passwords_and_users() {
    let server = Etcd::with()
        .root_password("s3cret")
        .user("ann", "p:w1", "clinch/")
        .start()
        .unwrap();
    works(&server.url()).await;
    // The minimal rights for locks in the namespace `clinch`, as in docs/stores/etcd.md.
    works(&server.url_as("ann", "p%3Aw1")).await;
    for url in [
        server.url_as("ann", "wr0ng"),
        server.url_as("nobody", "wr0ng"),
        format!("etcd://127.0.0.1:{}", server.port()),
    ] {
        let error = match Client::open(&url).await {
            Err(error) => error,
            // Leases need no rights, so the first claim is what fails.
            Ok(client) => {
                let claim = client.mutex("a", LONG);
                client.store.claim(&claim).await.unwrap_err()
            }
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let text = format!("{error} {error:?}");
        assert!(
            !text.contains("wr0ng") && !text.contains("s3cret"),
            "{text}"
        );
        assert!(error.advice().is_some(), "{text}");
    }
}

/// When the login has expired at the server, the client logs in again and keeps its holds.
#[tokio::test]
async fn a_login_is_renewed() {
    let server = Etcd::with()
        .root_password("s3cret")
        .option("auth-token-ttl", "1")
        .start()
        .unwrap();
    let one = clinch(&server.url()).await;
    let guard = one
        .lock("a")
        .lease(Duration::from_secs(3))
        .acquire()
        .await
        .unwrap();
    common::is_kept(&guard, Duration::from_secs(5)).await;
    guard.release().await.unwrap();
    works(&server.url()).await;
}

#[tokio::test]
async fn encrypted() {
    let server = Etcd::with().tls().start().unwrap();
    let ca = server.ca_file().unwrap().display().to_string();
    let url = server.url().replace("127.0.0.1", "localhost");
    works(&format!("{url}?tls=on&ca={ca}")).await;
    let unknown = refusal(&format!("{url}?tls=on")).await;
    assert_eq!(unknown.kind(), ErrorKind::Unreachable, "{unknown}");
    assert!(
        unknown.to_string().to_lowercase().contains("certificate"),
        "{unknown}"
    );
    let plain = refusal(&format!("{url}?timeout=1s")).await;
    assert_eq!(plain.kind(), ErrorKind::Unreachable, "{plain}");
}

#[tokio::test]
async fn client_certificates() {
    let server = Etcd::with().tls_client_certificates().start().unwrap();
    let files = server.certificates().unwrap();
    let url = server.url().replace("127.0.0.1", "localhost");
    let ca = format!("{url}?timeout=1s&tls=on&ca={}", files.ca_file().display());
    let own = (
        files.client_certificate().display(),
        files.client_key().display(),
    );
    works(&format!("{ca}&cert={}&key={}", own.0, own.1)).await;
    assert_eq!(refusal(&ca).await.kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn no_server_answers() {
    let error = refusal("etcd://127.0.0.1:1/?timeout=1s").await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(!error.may_have_taken_effect());
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

/// The first member that answers is used.
#[tokio::test]
async fn members_are_tried_in_turn() {
    let cluster = EtcdCluster::start().unwrap();
    let hosts = cluster.url().replace("etcd://", "etcd://127.0.0.1:1,");
    works(&hosts).await;
}

/// The minimum lease is the server's; the error for a shorter one names it.
#[tokio::test]
async fn a_lease_below_the_servers_minimum() {
    let server = Etcd::with()
        .option("heartbeat-interval", "400")
        .option("election-timeout", "4000")
        .start()
        .unwrap();
    let one = clinch(&server.url()).await;
    assert_eq!(one.info().limits.min_lease, Duration::from_secs(6));
    let short = one
        .lock("a")
        .lease(Duration::from_secs(5))
        .try_acquire()
        .await;
    let error = short.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("6s"), "{error}");
}

#[tokio::test]
async fn the_doctor_reports_the_version_and_the_members() {
    let cluster = EtcdCluster::start().unwrap();
    let one = clinch(&cluster.url()).await;
    let findings = one.doctor().await.unwrap();
    let of = |subject: &str| findings.iter().find(|f| f.subject == subject).unwrap();
    assert_eq!(of("members").severity, Severity::Ok);
    assert_eq!(of("leader").severity, Severity::Ok);
    assert_eq!(of("alarms").severity, Severity::Ok);
    let version = of("version");
    // The tests run on Debian's 3.4.23, which has the bug that the doctor warns of.
    let old = version.message.contains("3.4.23");
    assert_eq!(version.severity == Severity::Warning, old, "{version:?}");
}
