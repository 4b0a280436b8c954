//! Connections end: by an administrator, by the server, by a restart. Locks go on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, holders, number, pass, proxy, through};

const LEASE: Duration = Duration::from_secs(8);

async fn waits(client: &Client, name: &str) {
    let name = clinch_core::Name::new(name).unwrap();
    eventually("the waiter is queued", async || {
        let view = client.store.inspect(&name).await.unwrap();
        view.is_some_and(|view| view.waiters.len() == 1)
    })
    .await;
}

/// KILL for every connection: while idle, held, waited for, and before the release.
#[tokio::test]
async fn killed_connections_at_each_step_cost_no_lock() {
    let server = MariaDb::start().unwrap();
    let (one, other) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let watch = Client::at(&server).await;
    assert!(server.kill_connections().unwrap() > 0);
    let lock = one.lock("a").lease(LEASE);
    let guard = soon("the lock", lock.acquire()).await.unwrap();
    server.kill_connections().unwrap();
    let lock = other.lock("a").lease(LEASE);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waits(&watch, "a").await;
    // The parked connection, too.
    server.kill_connections().unwrap();
    let before = number(&guard);
    assert!(guard.is_valid());
    assert!(
        soon("the release", guard.release())
            .await
            .unwrap()
            .was_held()
    );
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(number(&next) > before);
    server.kill_connections().unwrap();
    assert!(
        soon("the release", next.release())
            .await
            .unwrap()
            .was_held()
    );
    all_free(&server).await;
}

/// Connections are killed again and again while tasks of two clients take turns.
#[tokio::test]
async fn killed_connections_all_the_time_cost_no_lock() {
    let server = MariaDb::start().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = clinch(&server.url()).await;
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..30 {
                let guard = client.lock("a").lease(LEASE).acquire().await.unwrap();
                assert!(number(&guard) > last);
                last = number(&guard);
                guard.release().await.unwrap();
            }
        }));
    }
    while !tasks.iter().all(|task| task.is_finished()) {
        server.kill_connections().unwrap();
        pass(Duration::from_millis(50)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    all_free(&server).await;
}

/// The server ends idle sessions after a second, and those of clinch ask for more.
#[tokio::test]
async fn wait_timeout_passes_while_a_lock_idles() {
    let server = MariaDb::with()
        .option("wait-timeout", "1")
        .option("interactive-timeout", "1")
        .start()
        .unwrap();
    let clinch = clinch(&server.url()).await;
    let guard = clinch.lock("a").lease(LONG).acquire().await.unwrap();
    pass(Duration::from_secs(3)).await;
    assert!(guard.is_valid());
    assert!(guard.release().await.unwrap().was_held());
    all_free(&server).await;
}

/// kill -9: what was committed is there again, and clients go on by themselves.
#[tokio::test]
async fn a_killed_server_comes_back_with_its_locks() {
    let server = MariaDb::start().unwrap();
    let (one, other) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let watch = Client::at(&server).await;
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let delayed = one
        .lock("d")
        .lease(LONG)
        .lock_delay(LONG)
        .acquire()
        .await
        .unwrap();
    watch.store.evict(delayed.name(), None).await.unwrap();
    let lock = other.lock("a").lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waits(&watch, "a").await;
    server.kill().unwrap();
    server.start_again().unwrap();
    let current = soon("an answer", async {
        loop {
            if let Ok(current) = one.check(&guard.sequencer()).await {
                return current;
            }
        }
    });
    assert!(current.await.is_current());
    assert!(guard.is_valid());
    let before = number(&guard);
    let released = soon("the release", guard.release()).await.unwrap();
    assert!(released.was_held());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(number(&next) > before);
    let delayed = soon("an answer", other.lock("d").try_acquire()).await;
    assert!(delayed.unwrap().is_none(), "the lock-delay is forgotten");
}

#[tokio::test]
async fn a_closed_client_leaves_no_connection() {
    let server = MariaDb::start().unwrap();
    let (one, other) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LONG).acquire().await.unwrap();
    let lock = other.lock("a").lease(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("a parked connection", async || {
        let parked = server
            .sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%GET_LOCK%'")
            .unwrap();
        parked.trim() != "0"
    })
    .await;
    waiting.abort();
    guard.release().await.unwrap();
    one.close().await.unwrap();
    other.close().await.unwrap();
    eventually("no connections", async || {
        server.status("Threads_connected").unwrap() == 1
    })
    .await;
}

/// Twenty claims of one process wait, on as many names: two parked connections in all.
#[tokio::test]
async fn waiters_of_one_process_share_two_connections() {
    let server = MariaDb::start().unwrap();
    let holder = clinch(&server.url()).await;
    let waiter = clinch(&format!("{}?pool=2", server.url())).await;
    let mut guards = Vec::new();
    let mut waiting = Vec::new();
    for n in 0..20 {
        let name = format!("n{n}");
        guards.push(holder.lock(&name).lease(LONG).acquire().await.unwrap());
        let lock = waiter.lock(&name).lease(LONG);
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
    }
    let count = |text: &str| {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE {text}");
        server.sql(&sql).unwrap().trim().parse::<usize>().unwrap()
    };
    eventually("a parked connection", async || {
        count("info LIKE '%GET_LOCK%clinch%'") > 1
    })
    .await;
    // A few of the holder, which sends one request after the other, two of the waiter, two for its wakes.
    assert!(count("user='clinch'") <= 12);
    for guard in guards {
        guard.release().await.unwrap();
    }
    for task in waiting {
        drop(soon("a waiter", task).await.unwrap().unwrap());
    }
}

/// The network drops eight idle connections silently. The first request finds out, and the
/// others are not tried one after the other.
#[tokio::test]
async fn silent_connections_cost_one_timeout() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    let client = Client::open(&through(&proxy)).await.unwrap();
    let claims: Vec<_> = (0..8)
        .map(|n| client.mutex(&format!("warm/{n}"), LONG))
        .collect();
    let claiming = claims.iter().map(|claim| {
        let (store, claim) = (client.store.clone(), claim.clone());
        tokio::spawn(async move { store.claim(&claim).await })
    });
    for task in claiming.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    let idle = proxy.open();
    assert!(idle > 4, "only {idle} connections");
    proxy.half_open();
    let claim = client.mutex("a", LONG);
    let mut tries = 0;
    eventually("the lock", async || {
        tries += 1;
        client.store.claim(&claim).await.is_ok()
    })
    .await;
    assert!(tries <= 2, "{tries} tries, each to its timeout");
    assert_eq!(client.holders("a").await, 1);
}

/// A server that takes no writes any more, as the old primary after a switch: no connection to it is kept,
/// because the address may lead to another server by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_server_without_writes_are_given_up() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    drop(Client::at(&server).await);
    let url = format!("mysql://limited:secret@{}/clinch", proxy.addr());
    let client = Client::open(&url).await.unwrap();
    client.granted(&client.mutex("a", LONG)).await;
    let before = proxy.links();
    server.sql("SET GLOBAL read_only = 1").unwrap();
    let claim = client.mutex("b", LONG);
    let error = client.store.claim(&claim).await.unwrap_err();
    assert!(error.to_string().contains("takes no writes"), "{error}");
    eventually("all connections are closed", async || {
        before.iter().all(|link| !link.is_open())
    })
    .await;
    server.sql("SET GLOBAL read_only = 0").unwrap();
    client.granted(&claim).await;
}

/// An event cannot be written, so the server refuses the claim with its transaction still open. What others
/// did on that connection later would not be committed.
#[tokio::test]
async fn a_refused_event_leaves_no_transaction_open() {
    let server = MariaDb::start().unwrap();
    let one = format!("{}?pool=2", server.url());
    let one = Client::open(&one).await.unwrap();
    let other = Client::at(&server).await;
    for name in ["a", "b"] {
        one.warm_up(name, LONG).await;
    }
    let _events = other.store.events("").await.unwrap();
    server.sql("RENAME TABLE clinch_events TO away").unwrap();
    let refused = one.store.claim(&one.mutex("a", LONG)).await;
    assert!(!refused.unwrap_err().may_have_taken_effect());
    server.sql("RENAME TABLE away TO clinch_events").unwrap();
    other.granted(&other.mutex("a", LONG)).await;
    one.granted(&one.mutex("b", LONG)).await;
    assert_eq!(holders(&server, "a").await, 1);
    assert_eq!(holders(&server, "b").await, 1);
}
