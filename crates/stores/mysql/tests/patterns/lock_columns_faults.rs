use std::time::Duration;

use clinch_core::ErrorKind;
use clinch_mysql::patterns::Claimed;
use clinch_testkit::proxy::Then;
use clinch_testkit::servers::{MariaDb, Step};
use clinch_testkit::wait::{drop_after, eventually};

use super::lock_columns::{LONG, held, locked_table, rows};
use super::{connect, through_proxy};

/// Whichever reply is lost (to the preparation, to the update), nothing is called "not acquired",
/// and the same claim on another connection gets the row.
#[tokio::test]
async fn lost_replies_of_a_claim_are_asked_for_again() {
    for nth in 1..=2 {
        let server = locked_table(MariaDb::start().unwrap());
        let (proxy, mut conn) = through_proxy(&server).await;
        proxy.swallow(nth, Then::Reset);
        let lost = rows().claim(&mut conn, 1, "a", LONG).await.unwrap_err();
        assert!(lost.may_have_taken_effect(), "{lost}");
        let mut other = connect(&server).await;
        let hold = held(&mut other, "a", LONG).await;
        assert_eq!(hold.token().get(), 1);
    }
}

#[tokio::test]
async fn lost_replies_of_renewal_and_release_are_unknown() {
    let server = locked_table(MariaDb::start().unwrap());
    let (proxy, mut conn) = through_proxy(&server).await;
    let mut hold = held(&mut conn, "a", LONG).await;
    proxy.swallow(2, Then::Reset);
    let lost = rows().renew(&mut conn, &mut hold, LONG).await.unwrap_err();
    assert!(lost.may_have_taken_effect() && hold.is_valid());
    let (proxy, mut conn) = through_proxy(&server).await;
    proxy.swallow(2, Then::Reset);
    let lost = rows().release(&mut conn, &hold).await.unwrap_err();
    assert!(lost.may_have_taken_effect());
    let mut other = connect(&server).await;
    assert!(!rows().release(&mut other, &hold).await.unwrap());
    assert_eq!(held(&mut other, "b", LONG).await.token().get(), 2);
}

/// Dropped at any point, a claim is done or not, and the same one again settles it.
#[tokio::test]
async fn dropped_claims_are_settled_by_the_same_claim() {
    let server = locked_table(MariaDb::start().unwrap());
    for polls in 1..12 {
        let mut conn = connect(&server).await;
        let owner = format!("owner-{polls}");
        let lock = rows();
        let claim = lock.claim(&mut conn, 1, &owner, LONG);
        let done = drop_after(claim, polls, Duration::from_secs(10)).await;
        if done.is_none() {
            // The answer to it may still be to come, so this connection is of no more use; unless
            // nothing had been sent.
            match rows().claim(&mut conn, 1, &owner, LONG).await {
                Ok(again) => assert!(matches!(again, Claimed::Held(_))),
                Err(e) => assert!(e.message().contains("half-way"), "{e}"),
            }
        }
        let gone = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {}",
            conn.id()
        );
        drop(conn);
        // What was sent is done by then, or never.
        eventually("the connection has ended", async || {
            server.sql(&gone).unwrap() == "0"
        })
        .await;
        let mut other = connect(&server).await;
        let hold = held(&mut other, &owner, LONG).await;
        if let Some(Ok(Claimed::Held(first))) = done {
            assert_eq!(first.token(), hold.token());
        }
        assert!(rows().release(&mut other, &hold).await.unwrap());
    }
}

#[tokio::test]
async fn killed_connections_and_servers_keep_the_row_held() {
    let server = locked_table(MariaDb::start().unwrap());
    let mut conn = connect(&server).await;
    let hold = held(&mut conn, "a", LONG).await;
    server.sql(&format!("KILL {}", conn.id())).unwrap();
    let dead = rows().write(&mut conn, &hold, &[("n", 1.into())]).await;
    assert_eq!(dead.unwrap_err().kind(), ErrorKind::Unreachable);
    server.kill().unwrap();
    server.start_again().unwrap();
    let mut conn = connect(&server).await;
    let busy = rows().claim(&mut conn, 1, "b", LONG).await.unwrap();
    assert!(matches!(busy, Claimed::Busy { .. }));
    rows()
        .write(&mut conn, &hold, &[("n", 2.into())])
        .await
        .unwrap();
    assert!(rows().release(&mut conn, &hold).await.unwrap());
    assert_eq!(server.sql("SELECT n FROM t WHERE id = 1").unwrap(), "2");
}

/// A clock that jumps ends the lease early for others; the row itself still refuses the first.
#[tokio::test]
async fn a_stepped_clock_costs_the_lease_and_never_the_row() {
    let server = locked_table(MariaDb::with().clock_shim().start().unwrap());
    let mut conn = connect(&server).await;
    let first = held(&mut conn, "a", LONG).await;
    server.step_clock(10 * LONG, Step::Forward).unwrap();
    let second = held(&mut conn, "b", LONG).await;
    assert!(second.token() > first.token());
    let late = rows().write(&mut conn, &first, &[("n", 1.into())]).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Lost);
    server.step_clock(20 * LONG, Step::Back).unwrap();
    let busy = rows().claim(&mut conn, 1, "c", LONG).await.unwrap();
    assert!(matches!(busy, Claimed::Busy { .. }));
    assert!(rows().release(&mut conn, &second).await.unwrap());
    assert!(held(&mut conn, "c", LONG).await.token() > second.token());
}
