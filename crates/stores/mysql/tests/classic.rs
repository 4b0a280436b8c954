//! The lock table as it is usually written, which deadlocks: the reason why ours is another one.
//!
//! A row is inserted to acquire and deleted to release, in REPEATABLE READ, the default. Whoever
//! looks for the row of a free lock locks the gap where it would be, whoever inserts waits for the
//! gaps of the others; and of those who wait for one inserted row, two get a share of it when it
//! is deleted, and each then wants all.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the user, who has a runtime"
)]

use std::time::Duration;

use clinch_testkit::servers::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, TxOpts};

const SESSIONS: usize = 64;
const ROUNDS: usize = 20;
const NAMES: usize = 4;

/// What a session met.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
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

async fn session(mut conn: Conn, number: usize, classic: Classic) -> Count {
    let mut count = Count::default();
    for round in 0..ROUNDS {
        let name = format!("name-{}", (number + round) % NAMES);
        let done = match classic {
            Classic::InsertDelete => insert_delete(&mut conn, &name).await,
            Classic::SelectInsert => select_insert(&mut conn, &name).await,
        };
        match done {
            Ok(acquired) => count.acquired += u64::from(acquired),
            Err(Error::Server(e)) if e.code == 1213 => count.deadlocks += 1,
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
    let mut tasks = Vec::new();
    for number in 0..SESSIONS {
        let conn = Conn::from_url(server.url()).await.unwrap();
        tasks.push(tokio::spawn(session(conn, number, classic)));
    }
    let mut all = Count::default();
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(120), task).await;
        let count = ended.unwrap().unwrap();
        all.acquired += count.acquired;
        all.deadlocks += count.deadlocks;
    }
    println!("{classic:?}: {all:?} of {}", SESSIONS * ROUNDS);
    (all, server)
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
