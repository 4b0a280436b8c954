use std::time::Duration;

use clinch_core::ErrorKind;
use clinch_mysql::patterns::{Locked, RowLock, Wait};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{drop_after, eventually, soon};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, IsolationLevel, Transaction, TxOpts};

use super::{connect, in_sessions, server};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 0); \
                     INSERT INTO t (id) VALUES (1), (2)";

async fn begin(conn: &mut Conn) -> Transaction<'_> {
    let mut options = TxOpts::default();
    options.with_isolation_level(IsolationLevel::ReadCommitted);
    conn.start_transaction(options).await.unwrap()
}

fn rows(wait: Wait) -> RowLock {
    RowLock::new("t", "id").unwrap().wait(wait)
}

#[tokio::test]
async fn busy_and_missing_rows_differ() {
    let server = server(TABLE);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let (mut a, mut b) = (begin(&mut a).await, begin(&mut b).await);
    assert_eq!(rows(Wait::No).lock(&mut a, 1).await.unwrap(), Locked::Yes);
    for wait in [Wait::No, Wait::Seconds(1)] {
        assert_eq!(rows(wait).lock(&mut b, 1).await.unwrap(), Locked::Busy);
    }
    assert_eq!(rows(Wait::No).lock(&mut b, 2).await.unwrap(), Locked::Yes);
    let missing = rows(Wait::No).lock(&mut b, 3).await;
    assert_eq!(missing.unwrap(), Locked::NoSuchRow);
    // Busy ended nothing: row 2 is still ours.
    assert_eq!(rows(Wait::No).lock(&mut a, 2).await.unwrap(), Locked::Busy);
    a.commit().await.unwrap();
    assert_eq!(rows(Wait::No).lock(&mut b, 1).await.unwrap(), Locked::Yes);
    b.rollback().await.unwrap();
}

#[tokio::test]
async fn a_server_that_rolls_back_at_timeouts_is_noticed() {
    let server = MariaDb::with().option("innodb-rollback-on-timeout", "ON");
    let server = server.start().unwrap();
    server.sql(TABLE).unwrap();
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let (mut a, mut b) = (begin(&mut a).await, begin(&mut b).await);
    assert_eq!(rows(Wait::No).lock(&mut a, 1).await.unwrap(), Locked::Yes);
    let refused = rows(Wait::Seconds(1)).lock(&mut b, 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable);
    assert!(refused.to_string().contains("rolled the transaction back"));
    a.rollback().await.unwrap();
}

#[tokio::test]
async fn a_killed_connection_frees_the_row_and_tells_its_owner() {
    let server = server(TABLE);
    let (mut a, mut b) = (connect(&server).await, connect(&server).await);
    let id = a.id();
    let (mut a, mut b) = (begin(&mut a).await, begin(&mut b).await);
    assert_eq!(rows(Wait::No).lock(&mut a, 1).await.unwrap(), Locked::Yes);
    a.query_drop("UPDATE t SET n = 7 WHERE id = 1")
        .await
        .unwrap();
    server.sql(&format!("KILL {id}")).unwrap();
    let next = soon("the row", rows(Wait::Server).lock(&mut b, 1)).await;
    assert_eq!(next.unwrap(), Locked::Yes);
    let seen: Option<u32> = b.query_first("SELECT n FROM t WHERE id = 1").await.unwrap();
    assert_eq!(seen, Some(0));
    let dead = rows(Wait::No).lock(&mut a, 2).await.unwrap_err();
    assert_eq!(dead.kind(), ErrorKind::Unreachable);
    assert!(!dead.may_have_taken_effect());
    assert!(a.commit().await.is_err());
    b.rollback().await.unwrap();
}

#[tokio::test]
async fn a_killed_server_forgets_the_lock_and_the_work() {
    let server = server(TABLE);
    let mut a = connect(&server).await;
    let mut a = begin(&mut a).await;
    assert_eq!(rows(Wait::No).lock(&mut a, 1).await.unwrap(), Locked::Yes);
    a.query_drop("UPDATE t SET n = 7 WHERE id = 1")
        .await
        .unwrap();
    server.kill().unwrap();
    server.start_again().unwrap();
    assert!(rows(Wait::No).lock(&mut a, 1).await.is_err());
    let mut b = connect(&server).await;
    let mut b = begin(&mut b).await;
    assert_eq!(rows(Wait::No).lock(&mut b, 1).await.unwrap(), Locked::Yes);
    b.rollback().await.unwrap();
    assert_eq!(server.sql("SELECT SUM(n) FROM t").unwrap(), "0");
}

/// A waiter that is dropped leaves nothing that would take the lock later.
#[tokio::test]
async fn a_dropped_wait_takes_nothing() {
    let server = server(TABLE);
    let mut a = connect(&server).await;
    let mut a = begin(&mut a).await;
    assert_eq!(rows(Wait::No).lock(&mut a, 1).await.unwrap(), Locked::Yes);
    let mut b = connect(&server).await;
    {
        let mut b = begin(&mut b).await;
        let lock = rows(Wait::Server);
        let waiting = lock.lock(&mut b, 1);
        let dropped = drop_after(waiting, 50, Duration::from_millis(100)).await;
        assert!(dropped.is_none());
        // The answer is still to come: it must not be taken for that to the next call.
        let refused = rows(Wait::No).lock(&mut b, 2).await.unwrap_err();
        assert!(refused.message().contains("half-way"), "{refused}");
    }
    drop(b);
    a.commit().await.unwrap();
    let mut c = connect(&server).await;
    eventually("the row is free", async || {
        let mut c = begin(&mut c).await;
        let locked = rows(Wait::No).lock(&mut c, 1).await.unwrap();
        c.rollback().await.unwrap();
        locked == Locked::Yes
    })
    .await;
    assert_eq!(server.sql("SELECT SUM(n) FROM t").unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_take_turns() {
    let server = server(TABLE);
    in_sessions(&server, |_, mut conn| async move {
        for _ in 0..5 {
            let mut tx = begin(&mut conn).await;
            let locked = rows(Wait::Server).lock(&mut tx, 1).await.unwrap();
            assert_eq!(locked, Locked::Yes);
            // Read and written apart, so that any overlap loses a count.
            let n: Option<u32> = tx
                .query_first("SELECT n FROM t WHERE id = 1")
                .await
                .unwrap();
            let n = n.unwrap() + 1;
            tx.exec_drop("UPDATE t SET n = ? WHERE id = 1", (n,))
                .await
                .unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 1").unwrap(), "320");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_jobs_without_waiting() {
    let server = server("CREATE TABLE t (id INT PRIMARY KEY, state VARCHAR(9), KEY (state, id))");
    let jobs: Vec<String> = (1..=200).map(|i| format!("({i}, 'new')")).collect();
    server
        .sql(&format!("INSERT INTO t VALUES {}", jobs.join(",")))
        .unwrap();
    let taken = in_sessions(&server, |_, mut conn| async move {
        let mut taken: Vec<u32> = Vec::new();
        loop {
            let mut tx = begin(&mut conn).await;
            let job = rows(Wait::Server).first_free(&mut tx, "state", "new").await;
            let Some(job) = job.unwrap() else {
                tx.rollback().await.unwrap();
                return taken;
            };
            tx.exec_drop("UPDATE t SET state = 'done' WHERE id = ?", (job,))
                .await
                .unwrap();
            tx.commit().await.unwrap();
            taken.push(job);
        }
    })
    .await;
    let mut all: Vec<u32> = taken.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=200).collect::<Vec<_>>());
}
