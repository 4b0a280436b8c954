use clinch_core::ErrorKind;
use clinch_mysql::patterns::{Guarded, Taken};
use clinch_testkit::proxy::Then;
use mysql_async::TxOpts;

use super::{both_ways_of_counting, connect, in_sessions, server, through_proxy};

const TABLE: &str = "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, n INT UNSIGNED NULL); \
                     INSERT INTO t VALUES ('a', 100), ('null', NULL)";

fn stock() -> Guarded {
    Guarded::new("t", "id", "n").unwrap()
}

#[tokio::test]
async fn too_little_and_no_row_differ() {
    let server = server(TABLE);
    for mut conn in both_ways_of_counting(&server).await {
        let mut take = async |id: &str, k| stock().take(&mut conn, id, k).await.unwrap();
        assert_eq!(take("a", 30).await, Taken::Yes);
        assert_eq!(take("a", 101).await, Taken::NotEnough);
        assert_eq!(take("null", 1).await, Taken::NotEnough);
        assert_eq!(take("b", 1).await, Taken::NoSuchRow);
        let nothing = stock().take(&mut conn, "a", 0).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::Invalid);
    }
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 'a'").unwrap(), "40");
}

/// A transaction's snapshot is older than what an update sees: the answer is by the newest row.
#[tokio::test]
async fn rows_that_a_snapshot_does_not_show_are_seen() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    let mut options = TxOpts::default();
    options.with_consistent_snapshot(true);
    let mut tx = conn.start_transaction(options).await.unwrap();
    server.sql("INSERT INTO t VALUES ('new', 1)").unwrap();
    let taken = stock().take(&mut tx, "new", 2).await.unwrap();
    assert_eq!(taken, Taken::NotEnough);
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_is_not_called_a_failure() {
    let server = server(TABLE);
    let (proxy, mut conn) = through_proxy(&server).await;
    assert_eq!(stock().take(&mut conn, "a", 1).await.unwrap(), Taken::Yes);
    proxy.swallow(1, Then::Reset);
    let lost = stock().take(&mut conn, "a", 10).await.unwrap_err();
    assert!(
        lost.may_have_taken_effect() && lost.is_temporary(),
        "{lost}"
    );
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 'a'").unwrap(), "89");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_sold_than_there_is() {
    let server = server(TABLE);
    let sold = in_sessions(&server, |_, mut conn| async move {
        let mut sold = 0;
        while stock().take(&mut conn, "a", 3).await.unwrap() == Taken::Yes {
            sold += 3;
        }
        sold
    })
    .await;
    assert_eq!(sold.iter().sum::<u32>(), 99);
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 'a'").unwrap(), "1");
}
