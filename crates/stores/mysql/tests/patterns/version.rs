use clinch_core::ErrorKind;
use clinch_mysql::patterns::{Swapped, VersionColumn};
use mysql_async::TxOpts;

use super::{both_ways_of_counting, connect, in_sessions, server};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, v BIGINT NOT NULL); \
                     INSERT INTO t VALUES (1, 0, 0)";

fn pages() -> VersionColumn {
    VersionColumn::new("t", "id", "v").unwrap()
}

#[tokio::test]
async fn who_comes_second_changes_nothing() {
    let server = server(TABLE);
    for (i, mut conn) in (0..).zip(both_ways_of_counting(&server).await) {
        let mut swap = async |id: u32, seen, n: u32| {
            let set = [("n", n.into())];
            pages().swap(&mut conn, id, seen, &set).await.unwrap()
        };
        assert_eq!(swap(1, i, 7).await, Swapped::Yes(i + 1));
        assert_eq!(swap(1, i, 8).await, Swapped::Newer(i + 1));
        assert_eq!(swap(2, i, 8).await, Swapped::NoSuchRow);
        assert_eq!(server.sql("SELECT n FROM t").unwrap(), "7");
    }
}

#[tokio::test]
async fn tries_are_bounded() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    let (pages, mut tries) = (pages(), 0);
    let refused = pages.update(&mut conn, 1, &["n"], 4, |_| {
        tries += 1;
        // Another client is always quicker.
        server.sql("UPDATE t SET v = v + 1").unwrap();
        vec![("n", 1.into())]
    });
    let refused = refused.await.unwrap_err();
    assert!(refused.is_temporary() && !refused.may_have_taken_effect());
    assert_eq!(tries, 4);
    assert_eq!(server.sql("SELECT n FROM t").unwrap(), "0");
}

#[tokio::test]
async fn nothing_to_set_and_no_row_are_no_changes() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    let pages = pages();
    let none = pages.update(&mut conn, 1, &[], 1, |_| Vec::new()).await;
    assert_eq!(none.unwrap(), Some(0));
    let missing = pages.update(&mut conn, 2, &[], 1, |_| panic!("no row"));
    assert_eq!(missing.await.unwrap(), None);
}

#[tokio::test]
async fn a_transaction_is_refused_before_it_writes() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    mysql_async::prelude::Queryable::query_drop(&mut conn, "BEGIN")
        .await
        .unwrap();
    let refused = pages()
        .update(&mut conn, 1, &["n"], 4, |_| panic!("it is not asked"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    drop(conn);
    // A single swap belongs to the caller's transaction.
    let mut conn = connect(&server).await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let swapped = pages().swap(&mut tx, 1, 0, &[("n", 5.into())]).await;
    assert_eq!(swapped.unwrap(), Swapped::Yes(1));
    tx.rollback().await.unwrap();
    assert_eq!(server.sql("SELECT n, v FROM t").unwrap(), "0\t0");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_is_lost() {
    let server = server(TABLE);
    in_sessions(&server, |_, mut conn| async move {
        for _ in 0..3 {
            let add = |row: &mysql_async::Row| {
                let n: u32 = row.get("n").unwrap();
                vec![("n", (n + 1).into())]
            };
            let done = pages().update(&mut conn, 1, &["n"], 10_000, add).await;
            assert!(done.unwrap().is_some());
        }
    })
    .await;
    assert_eq!(server.sql("SELECT n, v FROM t").unwrap(), "192\t192");
}

#[tokio::test]
async fn a_column_of_another_type_is_an_error() {
    let server = server(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, v VARCHAR(9)); \
         INSERT INTO t VALUES (1, 0, 'x'), (2, 0, NULL)",
    );
    let (mut conn, pages) = (connect(&server).await, pages());
    for id in [1_usize, 2] {
        let wrong = pages.swap(&mut conn, id, 7, &[("n", 1.into())]).await;
        let kind = wrong.unwrap_err().kind();
        // The server itself will not compare a text with a number.
        let right = [ErrorKind::Invalid, ErrorKind::Corrupt][id - 1];
        assert_eq!(kind, right);
        let wrong = pages.update(&mut conn, id, &[], 1, |_| panic!("it is not asked"));
        assert_eq!(wrong.await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
