//! Rows: whose they are, who locks them, when they go.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::time::Duration;

use clinch_core::LostReason;
use clinch_core::store::{ClaimReply, Severity};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, hold, number};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

/// Another session.
async fn session(server: &MariaDb) -> Conn {
    Conn::new(Opts::from_url(&server.url()).unwrap())
        .await
        .unwrap()
}

/// Another session locks the row and keeps its transaction open: the holder learns of its loss at its
/// deadline, callers get errors, other names are not harmed, and nothing is granted twice.
#[tokio::test]
async fn a_row_locked_by_another_session_for_two_leases() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = MariaDb::start().unwrap();
    let (one, other) = (clinch(&server.url()).await, clinch(&server.url()).await);
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let mut stranger = session(&server).await;
    stranger.query_drop("BEGIN").await.unwrap();
    let lock = "SELECT * FROM clinch_names WHERE ns = 'clinch' AND name = 'a' FOR UPDATE";
    stranger.query_drop(lock).await.unwrap();
    let reason = soon("the loss", guard.lost()).await;
    assert_eq!(reason, LostReason::Unrenewed);
    assert!(!guard.is_valid());
    // Another name is on another row.
    let free = other.lock("b").lease(LEASE).try_acquire().await.unwrap();
    assert!(free.is_some());
    let tried = other.lock("a").lease(LEASE).try_acquire().await;
    let error = tried.expect_err("it cannot be known");
    assert!(error.is_temporary(), "{error}");
    let before = number(&guard);
    stranger.query_drop("ROLLBACK").await.unwrap();
    let next = soon("the lock", other.lock("a").lease(LONG).acquire()).await;
    assert!(number(&next.unwrap()) > before);
}

#[tokio::test]
async fn doctor_tells_of_rows_that_stay_locked() {
    let server = MariaDb::start().unwrap();
    let clinch = clinch(&server.url()).await;
    clinch
        .lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let mut stranger = session(&server).await;
    stranger.query_drop("BEGIN").await.unwrap();
    let lock = "SELECT * FROM clinch_names WHERE ns = 'clinch' AND name = 'a' FOR UPDATE";
    stranger.query_drop(lock).await.unwrap();
    eventually("doctor warns", async || {
        let findings = clinch.doctor().await.unwrap();
        findings
            .iter()
            .any(|f| f.subject == "transactions" && f.severity == Severity::Warning)
    })
    .await;
}

/// The time zone of the server, and of its sessions, has nothing to do with leases.
#[tokio::test]
async fn another_time_zone_changes_nothing() {
    let server = MariaDb::with()
        .option("default-time-zone", "+11:00")
        .start()
        .unwrap();
    let client = Client::at(&server).await;
    let claim = client.mutex("a", LONG);
    client.granted(&claim).await;
    server.sql("SET GLOBAL time_zone = '-09:00'").unwrap();
    let other = Client::at(&server).await;
    let busy = clinch_core::store::Claim {
        queue: false,
        ..other.mutex("a", LONG)
    };
    let reply = other.store.claim(&busy).await.unwrap();
    let ClaimReply::Busy(busy) = reply else {
        panic!("{reply:?}")
    };
    let left = busy.retry_after.unwrap();
    assert!(left <= LONG && left > LONG / 2, "{left:?}");
}

/// Idle rows go, and the names that come back have greater tokens.
#[tokio::test]
async fn idle_rows_are_deleted_and_tokens_still_rise() {
    let server = MariaDb::start().unwrap();
    let client = Client::open(&format!("{}?remember=1s", server.url()))
        .await
        .unwrap();
    let mut last = Vec::new();
    for n in 0..300 {
        let claim = client.mutex(&format!("idle/{n}"), LONG);
        let grant = client.granted(&claim).await;
        client.store.release(&hold(&claim, &grant)).await.unwrap();
        last.push(grant.seq);
    }
    let kept = client.mutex("kept", LONG);
    client.granted(&kept).await;
    // A holder that never comes back.
    let dead = client.mutex("idle/dead", Duration::from_millis(200));
    client.granted(&dead).await;
    let count = |like: &str| {
        let sql = format!("SELECT COUNT(*) FROM clinch_names WHERE name LIKE '{like}'");
        server.sql(&sql).unwrap().trim().to_owned()
    };
    eventually("idle rows are gone", async || count("idle/%") == "0").await;
    assert_eq!(count("kept"), "1");
    for (n, before) in last.iter().enumerate() {
        let claim = client.mutex(&format!("idle/{n}"), LONG);
        let grant = client.granted(&claim).await;
        assert!(grant.seq > *before);
        client.store.release(&hold(&claim, &grant)).await.unwrap();
    }
}

/// The clock is set back after rows were deleted: the watermark keeps tokens rising, for a client too
/// that has seen none of them.
#[tokio::test]
async fn tokens_rise_after_cleanup_and_a_clock_set_back() {
    let server = MariaDb::with().clock_shim().start().unwrap();
    let url = format!("{}?remember=1s", server.url());
    let before = {
        let client = Client::open(&url).await.unwrap();
        let claim = client.mutex("a", LONG);
        let grant = client.granted(&claim).await;
        client.store.release(&hold(&claim, &grant)).await.unwrap();
        eventually("the row is gone", async || {
            server.sql("SELECT * FROM clinch_names").unwrap().is_empty()
        })
        .await;
        grant.seq
    };
    let hour = Duration::from_secs(3600);
    server
        .step_clock(hour, clinch_testkit::servers::Step::Back)
        .unwrap();
    let other = Client::at(&server).await;
    let after = other.granted(&other.mutex("a", LONG)).await.seq;
    assert!(after > before, "{after} after {before}");
}

/// Case and trailing blanks count, and names of 255 bytes fit.
#[tokio::test]
async fn names_are_bytes() {
    let server = MariaDb::start().unwrap();
    let client = Client::at(&server).await;
    let long = "x".repeat(255);
    for name in ["a", "A", "a ", "ä", "Ä", "%", "_", "\\", "'", &long] {
        client.granted(&client.mutex(name, LONG)).await;
    }
    assert_eq!(client.store.list("").await.unwrap().len(), 10);
    assert_eq!(client.store.list("a").await.unwrap().len(), 2);
}

/// 64 sessions on a few names: no deadlock reaches a caller. The same load on the usual lock table
/// is in `classic.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_on_four_names_see_no_deadlock() {
    let server = MariaDb::with()
        .option("max-connections", "1000")
        .start()
        .unwrap();
    let mut tasks = Vec::new();
    for n in 0..64 {
        let client = clinch(&format!("{}?pool=2", server.url())).await;
        tasks.push(tokio::spawn(async move {
            for round in 0..8 {
                let name = format!("n{}", (n + round) % 4);
                let guard = client.lock(&name).lease(LONG).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            let findings = client.doctor().await.unwrap();
            findings
                .into_iter()
                .find(|f| f.subject == "repeats")
                .unwrap()
                .message
        }));
    }
    let mut repeats = std::collections::BTreeMap::<String, usize>::new();
    for task in tasks {
        *repeats
            .entry(soon("a session", task).await.unwrap())
            .or_default() += 1;
    }
    for (message, clients) in repeats {
        println!("{clients} clients: {message}");
    }
    println!(
        "deadlocks at the server: {}",
        server.status("Innodb_deadlocks").unwrap()
    );
    all_free(&server).await;
}
