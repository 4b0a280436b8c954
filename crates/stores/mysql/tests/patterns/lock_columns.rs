use std::collections::BTreeSet;
use std::time::Duration;

use clinch_core::ErrorKind;
use clinch_mysql::patterns::{Claimed, ColumnNames, LockColumns, RowHold};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::eventually;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::{both_ways_of_counting, connect, in_sessions, server};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n INT DEFAULT 0); \
                     INSERT INTO t (id) VALUES (1), (2)";
/// It ends in no test.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// It is meant to run out.
pub(crate) const SHORT: Duration = Duration::from_millis(100);

pub(crate) fn rows() -> LockColumns {
    LockColumns::new("t", "id", ColumnNames::default()).unwrap()
}

pub(crate) fn locked_table(server: MariaDb) -> MariaDb {
    server.sql(TABLE).unwrap();
    server.sql(&rows().schema()).unwrap();
    server
}

pub(crate) async fn held(conn: &mut Conn, owner: &str, lease: Duration) -> RowHold {
    match rows().claim(conn, 1, owner, lease).await.unwrap() {
        Claimed::Held(hold) => hold,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn one_holder_at_a_time_and_tokens_rise() {
    let server = locked_table(MariaDb::start().unwrap());
    for (i, mut conn) in (0..).zip(both_ways_of_counting(&server).await) {
        let mut first = held(&mut conn, "a", LONG).await;
        assert!(first.is_valid());
        assert_eq!(first.token().get(), 2 * i + 1);
        match rows().claim(&mut conn, 1, "b", LONG).await.unwrap() {
            Claimed::Busy { owner, ends_in } => {
                assert_eq!(owner, "a");
                assert!(ends_in <= LONG && ends_in > LONG / 2, "{ends_in:?}");
            }
            other => panic!("{other:?}"),
        }
        let missing = rows().claim(&mut conn, 3, "b", LONG).await.unwrap();
        assert!(matches!(missing, Claimed::NoSuchRow));
        rows().renew(&mut conn, &mut first, LONG).await.unwrap();
        assert!(rows().release(&mut conn, &first).await.unwrap());
        assert!(!rows().release(&mut conn, &first).await.unwrap());
        let second = held(&mut conn, "b", LONG).await;
        assert_eq!(second.token().get(), 2 * i + 2);
        assert!(!rows().release(&mut conn, &first).await.unwrap());
        assert!(rows().release(&mut conn, &second).await.unwrap());
    }
}

/// The same owner once more is the same hold: after a lost reply it finds what it took.
#[tokio::test]
async fn a_claim_can_be_repeated() {
    let server = locked_table(MariaDb::start().unwrap());
    let mut conn = connect(&server).await;
    let first = held(&mut conn, "a", LONG).await;
    let again = held(&mut conn, "a", LONG).await;
    assert_eq!(first.token(), again.token());
    // Other letters are another owner, whatever the column's collation says.
    let other = rows().claim(&mut conn, 1, "A", LONG).await.unwrap();
    assert!(matches!(other, Claimed::Busy { .. }));
}

#[tokio::test]
async fn what_ran_out_passes_on_and_cannot_be_renewed_or_written() {
    let server = locked_table(MariaDb::start().unwrap());
    for mut conn in both_ways_of_counting(&server).await {
        let mut first = held(&mut conn, "a", SHORT).await;
        eventually("the lease has ended", async || {
            let next = rows().claim(&mut conn, 1, "b", LONG).await.unwrap();
            matches!(next, Claimed::Held(_))
        })
        .await;
        assert!(!first.is_valid());
        let second = held(&mut conn, "b", LONG).await;
        assert!(second.token() > first.token());
        let renewed = rows().renew(&mut conn, &mut first, LONG).await.unwrap_err();
        assert_eq!(renewed.kind(), ErrorKind::Lost);
        let set = [("n", 7.into())];
        let late = rows().write(&mut conn, &first, &set).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Lost);
        let (one, two) = (first.token().to_string(), second.token().to_string());
        assert!(late.message().contains(&one) && late.message().contains(&two));
        assert_eq!(server.sql("SELECT MAX(n) FROM t").unwrap(), "0");
        // The same value twice changes no row, and is no loss.
        for _ in 0..2 {
            let set = [("n", 0.into())];
            rows().write(&mut conn, &second, &set).await.unwrap();
        }
        assert!(rows().release(&mut conn, &second).await.unwrap());
    }
}

#[tokio::test]
async fn an_ended_lease_of_a_free_row_is_not_taken_back() {
    let server = locked_table(MariaDb::start().unwrap());
    let mut conn = connect(&server).await;
    let mut hold = held(&mut conn, "a", SHORT).await;
    eventually("the lease has ended", async || !hold.is_valid()).await;
    eventually("the server thinks so too", async || {
        let left = "SELECT lock_until <= UNIX_TIMESTAMP(UTC_TIMESTAMP(6)) * 1000000 FROM t \
                    WHERE id = 1";
        server
            .sql(&format!("SET time_zone = '+00:00'; {left}"))
            .unwrap()
            == "1"
    })
    .await;
    let refused = rows().renew(&mut conn, &mut hold, LONG).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
    assert!(!hold.is_valid());
}

#[tokio::test]
async fn transactions_and_bad_arguments_are_refused() {
    let server = locked_table(MariaDb::start().unwrap());
    let mut conn = connect(&server).await;
    for (owner, lease) in [("", LONG), ("a", Duration::ZERO), ("a", Duration::MAX)] {
        let refused = rows().claim(&mut conn, 1, owner, lease).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    conn.query_drop("BEGIN").await.unwrap();
    let refused = rows().claim(&mut conn, 1, "a", LONG).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    drop(conn);
    let mut conn = connect(&server).await;
    conn.query_drop("SET autocommit = 0").await.unwrap();
    let refused = rows().claim(&mut conn, 1, "a", LONG).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.may_have_taken_effect());
}

#[tokio::test]
async fn sessions_of_other_time_zones_agree() {
    let server = locked_table(MariaDb::start().unwrap());
    let (mut east, mut west) = (connect(&server).await, connect(&server).await);
    east.query_drop("SET time_zone = '+13:00'").await.unwrap();
    west.query_drop("SET time_zone = '-11:00'").await.unwrap();
    for (a, b) in [(&mut east, &mut west)] {
        let hold = held(a, "east", LONG).await;
        let busy = rows().claim(b, 1, "west", LONG).await.unwrap();
        let Claimed::Busy { ends_in, .. } = busy else {
            panic!("{busy:?}");
        };
        assert!(ends_in <= LONG && ends_in > LONG / 2, "{ends_in:?}");
        assert!(rows().release(a, &hold).await.unwrap());
        let hold = held(b, "west", LONG).await;
        let busy = rows().claim(a, 1, "east", LONG).await.unwrap();
        assert!(matches!(busy, Claimed::Busy { .. }));
        assert!(rows().release(b, &hold).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_take_turns() {
    let server = locked_table(server("SELECT 1"));
    let tokens = in_sessions(&server, |i, mut conn| async move {
        let owner = format!("session-{i}");
        loop {
            let Claimed::Held(hold) = rows().claim(&mut conn, 1, &owner, LONG).await.unwrap()
            else {
                tokio::task::yield_now().await;
                continue;
            };
            // Read and written apart, so that any overlap loses a count.
            let n: Option<u32> = conn
                .query_first("SELECT n FROM t WHERE id = 1")
                .await
                .unwrap();
            let set = [("n", (n.unwrap() + 1).into())];
            rows().write(&mut conn, &hold, &set).await.unwrap();
            assert!(rows().release(&mut conn, &hold).await.unwrap());
            return hold.token();
        }
    })
    .await;
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 1").unwrap(), "64");
    let all: BTreeSet<_> = tokens.iter().map(|token| token.get()).collect();
    assert_eq!(all, (1..=64).collect());
}
