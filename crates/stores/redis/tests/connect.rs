//! Who may connect, where to, and what is refused, in one clear line.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::{Clock, ErrorKind};
use clinch_testkit::servers::{Cluster, Redis};
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, clinch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The least that locks on one server need; docs/stores/redis.md has the same.
const LEAST: &str = "resetchannels ~clinch:{clinch:* &clinch:clinch:* +eval +evalsha +info +time \
    +get +set +del +scan +publish +subscribe +unsubscribe +pubsub|numsub";

/// Takes, waits for, inspects and releases a lock: everything that a client does.
async fn works(url: &str) {
    let (one, two) = (clinch(url).await, clinch(url).await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = two.lock("a").lease(LONG);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    eventually("it waits", async || {
        one.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
    let permit = one.semaphore("s", 2).acquire().await.unwrap();
    assert_eq!(one.list("").await.unwrap().len(), 2);
    permit.release().await.unwrap();
    guard.release().await.unwrap();
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(one.check(&next.sequencer()).await.unwrap().is_current());
    one.evict("a", None).await.unwrap();
    assert_eq!(one.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let server = Redis::start().unwrap();
    let error = Client::refusal(&format!("{}/99", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("choose a database"), "{error}");
}

#[tokio::test]
async fn passwords_and_users() {
    let server = Redis::with()
        .password("s3cret")
        .user("ann", "p:w@1", "~* &* +@all")
        .start()
        .unwrap();
    works(&server.url()).await;
    works(&server.url_as("ann", "p%3Aw%401")).await;
    for url in [
        server.url_as("", "wr0ng"),
        server.url_as("ann", "wr0ng"),
        server.url_as("nobody", "wr0ng"),
        format!("redis://127.0.0.1:{}", server.port()),
    ] {
        let error = Client::refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let text = format!("{error} {error:?}");
        assert!(
            !text.contains("wr0ng") && !text.contains("s3cret"),
            "{text}"
        );
        assert!(text.contains(&server.port().to_string()), "{text}");
        assert!(error.advice().is_some(), "{text}");
    }
}

#[tokio::test]
async fn the_least_rights_are_enough() {
    let server = Redis::with()
        .password("x")
        .user("least", "pw", LEAST)
        .start()
        .unwrap();
    works(&server.url_as("least", "pw")).await;
    let client = Client::open(&server.url_as("least", "pw")).await.unwrap();
    client.store.doctor().await.unwrap();
    // Less is not: each right of the rule is needed.
    let rights: Vec<&str> = LEAST
        .split_whitespace()
        .filter(|right| right.starts_with('+'))
        .collect();
    for right in rights {
        let less = LEAST.replace(&format!(" {right}"), "");
        assert_ne!(less, LEAST, "{right}");
        server
            .cli(&["ACL", "SETUSER", "less", "reset", "on", ">pw"])
            .unwrap();
        let mut rule = vec!["ACL", "SETUSER", "less"];
        rule.extend(less.split_whitespace().filter(|other| *other != right));
        server.cli(&rule).unwrap();
        let denied = || server.command(&["ACL", "LOG"]).unwrap().list().len();
        server.cli(&["ACL", "LOG", "RESET"]).unwrap();
        let url = format!("{}/?timeout=2s", server.url_as("less", "pw"));
        if let Ok(client) = Client::open(&url).await {
            let (held, next) = (client.permit("s", 2, LONG), client.permit("s", 2, LONG));
            let _ = client.store.claim(&held).await;
            let _ = client.store.claim(&client.permit("s", 2, LONG)).await;
            let _ = client.store.claim(&next).await;
            let _ = client.store.claim(&next).await;
            let _ = client.store.evict(&held.name, None).await;
            let _ = client.store.list("").await;
            if let Ok(events) = client.store.events("").await {
                drop(events);
            }
            // When memory is short, giving up takes one command more.
            let memory = |bytes| server.cli(&["CONFIG", "SET", "maxmemory", bytes]).unwrap();
            memory("1");
            let _ = client.store.withdraw(&next).await;
            memory("0");
            if right == "+unsubscribe" {
                eventually("it is noticed", async || denied() > 0).await;
            }
        }
        server.cli(&["FLUSHALL"]).unwrap();
        assert!(denied() > 0, "{right} is not needed");
    }
}

/// No right to the channels: waiters are not woken, so they poll.
#[tokio::test]
async fn without_channels_waiters_poll() {
    let deaf = LEAST.replace("&clinch:clinch:* ", "");
    let server = Redis::with()
        .password("x")
        .user("deaf", "pw", &deaf)
        .start()
        .unwrap();
    let url = server.url_as("deaf", "pw");
    works(&url).await;
    assert_eq!(server.cli(&["PUBSUB", "CHANNELS"]).unwrap(), "");
}

#[tokio::test]
async fn databases_are_apart() {
    let server = Redis::start().unwrap();
    let first = Client::at(&server).await;
    first.granted(&first.mutex("a", LONG)).await;
    for url in [
        format!("{}/1", server.url()),
        format!("{}/?db=2", server.url()),
    ] {
        let other = Client::open(&url).await.unwrap();
        other.granted(&other.mutex("a", LONG)).await;
    }
    let keys = server.cli(&["INFO", "keyspace"]).unwrap();
    // In each the lock, and the highest number.
    for db in ["db0:keys=2", "db1:keys=2", "db2:keys=2"] {
        assert!(keys.contains(db), "{keys}");
    }
    let error = Client::refusal(&format!("{}/99", server.url())).await;
    assert!(error.to_string().contains("DB index"), "{error}");
}

#[tokio::test]
async fn a_socket_file() {
    let server = Redis::with().unix_socket().start().unwrap();
    works(&server.unix_url()).await;
    let client = Client::open(&format!("{}?db=1", server.unix_url()))
        .await
        .unwrap();
    client.granted(&client.mutex("a", LONG)).await;
    assert!(
        server
            .cli(&["INFO", "keyspace"])
            .unwrap()
            .contains("db1:keys=2")
    );
    let error = Client::refusal("redis+unix:///nonexistent/socket").await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
}

#[tokio::test]
async fn encrypted_connections() {
    let server = Redis::with().tls().start().unwrap();
    let ca = server.ca_file().unwrap().display().to_string();
    works(&format!("{}/?ca={ca}", server.url())).await;
    let other = Redis::with().tls().start().unwrap();
    let wrong = other.ca_file().unwrap().display().to_string();
    for url in [
        format!("{}/?ca={wrong}", server.url()),
        server.url(),
        format!("redis://127.0.0.1:{}/?timeout=1s", server.port()),
        format!("{}/?ca=/nonexistent/ca", server.url()),
    ] {
        let error = Client::refusal(&url).await;
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Unreachable | ErrorKind::Invalid | ErrorKind::Denied
            ),
            "{error}"
        );
    }
    let missing = Client::refusal(&format!("{}/?ca=/nonexistent/ca", server.url())).await;
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert!(missing.to_string().contains("/nonexistent/ca"), "{missing}");
}

#[tokio::test]
async fn the_switch_for_encryption_says_what_it_means() {
    let plain = Redis::start().unwrap();
    for off in ["off", "no"] {
        works(&format!("{}/?tls={off}", plain.url())).await;
    }
    let server = Redis::with().tls().start().unwrap();
    let ca = server.ca_file().unwrap().display().to_string();
    let port = server.port();
    for on in ["on", "yes"] {
        works(&format!("{}/?tls={on}&ca={ca}", server.url())).await;
        works(&format!("redis://127.0.0.1:{port}/?tls={on}&ca={ca}")).await;
    }
    for (wrong, says) in [
        (format!("{}/?tls=off", server.url()), "tls=off"),
        (format!("{}/?tls=maybe", plain.url()), "tls=maybe"),
    ] {
        let error = Client::refusal(&wrong).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn client_certificates() {
    let server = Redis::with().tls_client_certificates().start().unwrap();
    let files = server.certificates().unwrap();
    let ca = format!("{}/?ca={}", server.url(), files.ca_file().display());
    let (cert, key) = (files.client_certificate(), files.client_key());
    works(&format!(
        "{ca}&cert={}&key={}",
        cert.display(),
        key.display()
    ))
    .await;
    Client::refusal(&ca).await;
}

#[tokio::test]
async fn a_replica_is_refused_and_its_master_named() {
    let master = Redis::start().unwrap();
    let replica = Redis::with().replica_of(master.port()).start().unwrap();
    let error = Client::refusal(&replica.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let named = format!("is a replica of 127.0.0.1:{}", master.port());
    assert!(error.to_string().contains(&named), "{error}");
}

#[tokio::test]
async fn a_server_without_resp3_is_refused() {
    let server = Redis::with()
        .config("rename-command", "HELLO \"\"")
        .start()
        .unwrap();
    let error = Client::refusal(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("RESP3"), "{error}");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_unless_that_is_accepted() {
    let server = Redis::with()
        .config("maxmemory", "100mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start()
        .unwrap();
    let error = Client::refusal(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    assert!(error.advice().unwrap().contains("eviction=accept"));
    works(&format!("{}/?eviction=accept", server.url())).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_says_which_url_to_use() {
    let cluster = Cluster::start().unwrap();
    let error = Client::refusal(&cluster.node(0).unwrap().url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[tokio::test]
async fn a_server_that_loads_is_waited_for_by_claims_and_named_by_connect() {
    // Each key takes 20 ms to load, and clients are served after each.
    let server = Redis::with()
        .config("save", "3600 1")
        .config("key-load-delay", "20000")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let client = clinch(&server.url()).await;
    let guard = client.lock("a").lease(LONG).acquire().await.unwrap();
    let value = "v".repeat(2000);
    for i in 0..100 {
        server.cli(&["SET", &format!("k{i}"), &value]).unwrap();
    }
    server
        .cli(&["CONFIG", "SET", "rdbcompression", "no"])
        .unwrap();
    server.cli(&["SAVE"]).unwrap();
    server.process().restart().unwrap();
    let mut said = String::new();
    eventually("it loads", async || {
        match Client::open(&server.url()).await {
            Ok(_) => panic!("it was never seen to load; last: {said}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                said = error.to_string();
                said.contains("loading")
            }
        }
    })
    .await;
    let other = client.lock("b");
    assert!(soon("the lock", other.acquire()).await.unwrap().is_valid());
    assert!(guard.is_valid());
}

#[tokio::test]
async fn no_server_listens() {
    let port = {
        let server = Redis::start().unwrap();
        server.port()
    };
    let error = Client::refusal(&format!("redis://127.0.0.1:{port}")).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error.to_string().contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
    assert!(!error.may_have_taken_effect());
}

/// Listens, and is not Redis.
async fn impostor(says: Option<&'static [u8]>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut peer, _)) = listener.accept().await {
            match says {
                Some(b"") => {}
                Some(words) => {
                    let _ = peer.read(&mut [0; 64]).await;
                    let _ = peer.write_all(words).await;
                    kept.push(peer);
                }
                None => kept.push(peer),
            }
        }
    });
    port
}

#[tokio::test]
async fn what_is_not_redis_is_refused_in_time() {
    let web = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    for says in [None, Some(&b""[..]), Some(&web[..]), Some(&b"+OK\r\n"[..])] {
        let port = impostor(says).await;
        let (clock, began) = (Clock::boot(), Clock::boot().now());
        let error = Client::refusal(&format!("redis://127.0.0.1:{port}/?timeout=300ms")).await;
        let took = clock.now().since(began);
        assert!(
            error.to_string().contains(&format!("127.0.0.1:{port}")),
            "{error}"
        );
        assert!(!error.may_have_taken_effect(), "{error}");
        assert!(took < Duration::from_secs(5), "{took:?} for {error}");
    }
}
