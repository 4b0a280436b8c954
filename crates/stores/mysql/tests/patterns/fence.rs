use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clinch_core::{ErrorKind, Token};
use clinch_mysql::patterns::Fence;
use clinch_testkit::wait::soon;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};

use super::{both_ways_of_counting, connect, in_sessions, server};

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0); \
                     INSERT INTO t (id) VALUES (1); \
                     CREATE TABLE log (at INT AUTO_INCREMENT PRIMARY KEY, token BIGINT)";

fn token(seq: u64) -> Token {
    Token::new(seq, 0).unwrap()
}

async fn fences(conn: &mut Conn) -> [Fence; 2] {
    conn.query_drop(Fence::schema("fences").unwrap())
        .await
        .unwrap();
    let column = Fence::column("t", "id", "fence").unwrap();
    [column, Fence::table("fences").unwrap()]
}

/// One transaction with nothing but the check.
async fn check(conn: &mut Conn, fence: &Fence, seq: u64) -> clinch_core::Result<()> {
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let checked = fence.check(&mut tx, 1, token(seq)).await;
    match checked {
        Ok(()) => tx.commit().await.unwrap(),
        Err(_) => tx.rollback().await.unwrap(),
    }
    checked
}

#[tokio::test]
async fn smaller_tokens_are_refused_and_equal_ones_pass() {
    for way in 0..2 {
        let server = server(TABLE);
        let [a, b] = both_ways_of_counting(&server).await;
        let mut conn = if way == 0 { a } else { b };
        for fence in fences(&mut conn).await {
            check(&mut conn, &fence, 5).await.unwrap();
            check(&mut conn, &fence, 5).await.unwrap();
            check(&mut conn, &fence, 7).await.unwrap();
            let late = check(&mut conn, &fence, 6).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Lost);
            let text = late.to_string();
            assert!(text.contains(&token(6).to_string()), "{text}");
            assert!(text.contains(&token(7).to_string()), "{text}");
            check(&mut conn, &fence, 7).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_or_dies_leaves_no_token() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    for fence in fences(&mut conn).await {
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        fence.check(&mut tx, 1, token(9)).await.unwrap();
        tx.rollback().await.unwrap();
        let mut dies = connect(&server).await;
        let id = dies.id();
        let mut tx = dies.start_transaction(TxOpts::default()).await.unwrap();
        fence.check(&mut tx, 1, token(9)).await.unwrap();
        server.sql(&format!("KILL {id}")).unwrap();
        assert!(tx.commit().await.is_err());
        soon("the fence", check(&mut conn, &fence, 1))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_row_that_is_missing_is_an_error() {
    let server = server(TABLE);
    let mut conn = connect(&server).await;
    let fence = Fence::column("t", "id", "fence").unwrap();
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let refused = fence.check(&mut tx, 2, token(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    tx.rollback().await.unwrap();
}

/// Whatever the order in which sessions come, what they write is in the order of their tokens.
#[tokio::test(flavor = "multi_thread")]
async fn writes_are_in_the_order_of_tokens() {
    for kind in 0..2 {
        let server = server(TABLE);
        let fence = fences(&mut connect(&server).await).await[kind].clone();
        let next = Arc::new(AtomicU64::new(1));
        let passed = in_sessions(&server, |_, mut conn| {
            let (fence, next) = (fence.clone(), next.clone());
            async move {
                let mut passed = 0;
                for _ in 0..5 {
                    let mine = token(next.fetch_add(1, Ordering::SeqCst));
                    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
                    match fence.check(&mut tx, 1, mine).await {
                        Ok(()) => {
                            let sql = "INSERT INTO log (token) VALUES (?)";
                            tx.exec_drop(sql, (mine.get(),)).await.unwrap();
                            tx.commit().await.unwrap();
                            passed += 1;
                        }
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Lost, "{e}");
                            tx.rollback().await.unwrap();
                        }
                    }
                }
                passed
            }
        })
        .await;
        let log = server.sql("SELECT token FROM log ORDER BY at").unwrap();
        let log: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(log.len(), passed.iter().sum::<usize>());
        assert!(log.is_sorted(), "{log:?}");
        assert!(log.len() > 1);
    }
}
