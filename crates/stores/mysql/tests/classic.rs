//! The lock table as it is usually written, which deadlocks: the reason why ours is another one.
//!
//! A row is inserted to acquire and deleted to release, in REPEATABLE READ, the default. A client that
//! looks for the row of a free lock locks the gap where it would be, one that inserts waits for the
//! gaps of the others; and of those that wait for one inserted row, two get a share of it when it
//! is deleted, and each then wants all.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the user, who has a runtime"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::eventually;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, TxOpts};

const SESSIONS: usize = 64;
const NAMES: usize = 4;
/// How often each session tries, at least.
const ROUNDS: usize = 20;
/// And at most, if there has been no deadlock yet: chance decides when the first one comes.
const MOST: usize = 100 * ROUNDS;

/// What a session met.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    tries: usize,
    acquired: u64,
    deadlocks: u64,
}

/// INSERT to acquire inside the transaction that does the work, DELETE to release.
async fn insert_delete(conn: &mut Conn, name: &str) -> Result<bool, Error> {
    let mut tx = conn.start_transaction(options()).await?;
    tx.exec_drop("INSERT INTO locks (name) VALUES (?)", (name,))
        .await?;
    tx.exec_drop("DELETE FROM locks WHERE name = ?", (name,))
        .await?;
    tx.commit().await?;
    Ok(true)
}

/// SELECT … FOR UPDATE to look whether it is free, INSERT to acquire; DELETE to release.
async fn select_insert(conn: &mut Conn, name: &str) -> Result<bool, Error> {
    let mut tx = conn.start_transaction(options()).await?;
    let select = "SELECT 1 FROM locks WHERE name = ? FOR UPDATE";
    let taken: Option<u8> = tx.exec_first(select, (name,)).await?;
    if taken.is_some() {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.exec_drop("INSERT INTO locks (name) VALUES (?)", (name,))
        .await?;
    tx.commit().await?;
    conn.exec_drop("DELETE FROM locks WHERE name = ?", (name,))
        .await?;
    Ok(true)
}

fn options() -> TxOpts {
    let mut options = TxOpts::default();
    options.with_isolation_level(IsolationLevel::RepeatableRead);
    options
}

/// Which of the two is run.
#[derive(Debug, Clone, Copy)]
enum Classic {
    InsertDelete,
    SelectInsert,
}

async fn session(mut conn: Conn, number: usize, classic: Classic, seen: Arc<AtomicBool>) -> Count {
    let mut count = Count::default();
    for round in 0..MOST {
        if round >= ROUNDS && seen.load(Ordering::SeqCst) {
            break;
        }
        count.tries += 1;
        let name = match classic {
            Classic::InsertDelete => format!("name-{}", (number + round) % NAMES),
            // A few at a time, and always others: what is left of a deleted row until it is purged
            // makes those who look for it wait in line.
            Classic::SelectInsert => format!("name-{}-{round}", number % NAMES),
        };
        let done = match classic {
            Classic::InsertDelete => insert_delete(&mut conn, &name).await,
            Classic::SelectInsert => select_insert(&mut conn, &name).await,
        };
        match done {
            Ok(acquired) => count.acquired += u64::from(acquired),
            Err(Error::Server(e)) if e.code == 1213 => {
                count.deadlocks += 1;
                seen.store(true, Ordering::SeqCst);
            }
            // Taken, or waited for too long: what such a lock calls "not acquired".
            Err(Error::Server(e)) if matches!(e.code, 1062 | 1205) => {}
            Err(e) => panic!("{e}"),
        }
    }
    count
}

async fn run(classic: Classic) -> (Count, MariaDb) {
    let server = MariaDb::start().unwrap();
    server
        .sql("CREATE TABLE locks (name VARCHAR(50) PRIMARY KEY) ENGINE=InnoDB")
        .unwrap();
    let seen = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for number in 0..SESSIONS {
        let conn = Conn::from_url(server.url()).await.unwrap();
        tasks.push(tokio::spawn(session(conn, number, classic, seen.clone())));
    }
    let mut all = Count::default();
    for task in tasks {
        let count = task.await.unwrap();
        all.tries += count.tries;
        all.acquired += count.acquired;
        all.deadlocks += count.deadlocks;
    }
    println!("{classic:?}: {all:?}");
    (all, server)
}

/// Without any chance: two who see a free lock both lock the gap, and then wait for each other.
#[tokio::test]
async fn two_who_see_a_free_lock_deadlock() {
    let server = MariaDb::start().unwrap();
    server
        .sql("CREATE TABLE locks (name VARCHAR(50) PRIMARY KEY) ENGINE=InnoDB")
        .unwrap();
    let mut a = Conn::from_url(server.url()).await.unwrap();
    let mut b = Conn::from_url(server.url()).await.unwrap();
    let mut a = a.start_transaction(options()).await.unwrap();
    let mut b = b.start_transaction(options()).await.unwrap();
    for tx in [&mut a, &mut b] {
        let select = "SELECT 1 FROM locks WHERE name = 'a' FOR UPDATE";
        let taken: Option<u8> = tx.query_first(select).await.unwrap();
        assert_eq!(taken, None);
    }
    let insert = "INSERT INTO locks (name) VALUES ('a')";
    let second = async {
        eventually("the first one waits", async || {
            server.status("Innodb_row_lock_current_waits").unwrap() == 1
        })
        .await;
        b.query_drop(insert).await
    };
    let (first, second) = tokio::join!(a.query_drop(insert), second);
    let codes = [first, second].map(|done| match done {
        Ok(()) => 0,
        Err(Error::Server(e)) => e.code,
        Err(e) => panic!("{e}"),
    });
    assert!(codes.contains(&0) && codes.contains(&1213), "{codes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn insert_and_delete_deadlock() {
    let (count, server) = run(Classic::InsertDelete).await;
    assert!(count.deadlocks > 0, "{count:?}");
    assert!(server.status("Innodb_deadlocks").unwrap() >= count.deadlocks);
}

#[tokio::test(flavor = "multi_thread")]
async fn select_for_update_and_insert_deadlock() {
    let (count, server) = run(Classic::SelectInsert).await;
    assert!(count.deadlocks > 0, "{count:?}");
    assert!(server.status("Innodb_deadlocks").unwrap() >= count.deadlocks);
}
