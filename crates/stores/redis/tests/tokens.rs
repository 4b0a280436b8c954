//! Tokens rise whatever the server forgets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::time::Duration;

use clinch_core::store::{ClaimReply, Wake};
use clinch_testkit::servers::{Redis, Step};
use clinch_testkit::wait::soon;
use common::{Client, LONG, hold};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Takes and gives up the lock; says its number.
async fn pair(client: &Client) -> u64 {
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    client.store.release(&hold(&claim, &grant)).await.unwrap();
    grant.seq
}

#[tokio::test]
async fn they_rise_over_flushall_and_a_restart_without_data_for_all_clients() {
    let server = Redis::start().unwrap();
    let clients = [Client::at(&server).await, Client::at(&server).await];
    let mut last = 0;
    for round in 0..4 {
        for client in &clients {
            let number = pair(client).await;
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        match round % 2 {
            0 => drop(server.cli(&["FLUSHALL"]).unwrap()),
            _ => server.start_empty().unwrap(),
        }
    }
}

/// The server forgets everything and its clock goes back: who has seen a number makes sure that the
/// next is greater, and from then on they rise for all clients.
#[tokio::test]
async fn they_rise_over_flushall_and_a_clock_set_back_for_who_has_seen_one() {
    let server = Redis::with().clock_shim().start().unwrap();
    let (one, other) = (Client::at(&server).await, Client::at(&server).await);
    let mut last = pair(&one).await;
    for _ in 0..3 {
        server.cli(&["FLUSHALL"]).unwrap();
        server.step_clock(YEAR, Step::Back).unwrap();
        for client in [&one, &other, &one] {
            let number = pair(client).await;
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    }
}

/// The same, when the numbers seen came as pushed grants, and when the grant is one.
#[tokio::test]
async fn pushed_grants_count_as_seen_and_rise() {
    let server = Redis::with().clock_shim().start().unwrap();
    let (one, other) = (Client::at(&server).await, Client::at(&server).await);
    let mut last = 0;
    for _ in 0..2 {
        let (held, waiting) = (other.mutex("a", LONG), one.mutex("a", LONG));
        // The other has seen nothing of what was, except in the first round its own.
        let grant = match last {
            0 => other.granted(&held).await,
            _ => {
                let newcomer = Client::at(&server).await;
                let ClaimReply::Granted(grant) = newcomer.store.claim(&held).await.unwrap() else {
                    panic!("it is free");
                };
                grant
            }
        };
        one.queued(&waiting).await;
        let mut wakes = one.store.wakes(&waiting);
        other.store.release(&hold(&held, &grant)).await.unwrap();
        let wake = soon("the pushed grant", wakes.next()).await;
        let Some(Wake::Granted(pushed)) = wake else {
            panic!("{wake:?}");
        };
        assert!(pushed.seq > last, "{} after {last}", pushed.seq);
        last = pushed.seq;
        one.store.release(&hold(&waiting, &pushed)).await.unwrap();
        server.cli(&["FLUSHALL"]).unwrap();
        server.step_clock(YEAR, Step::Back).unwrap();
    }
    // The last number was pushed, never the reply to a claim.
    let number = pair(&one).await;
    assert!(number > last, "{number} after {last}");
}

/// A request repeated after the data were lost is a new grant with a greater number.
#[tokio::test]
async fn a_repeated_claim_after_a_loss_has_a_greater_number() {
    let server = Redis::start().unwrap();
    let client = Client::at(&server).await;
    let claim = client.mutex("a", LONG);
    let first = client.granted(&claim).await;
    assert_eq!(client.granted(&claim).await.seq, first.seq);
    server.cli(&["FLUSHALL"]).unwrap();
    assert!(client.granted(&claim).await.seq > first.seq);
    let stale = client.store.check(&claim.name, first.seq).await.unwrap();
    assert!(!stale.is_current());
}

/// The clock was ahead and is right again, so numbers are ahead of it. Names are forgotten after a second, also
/// while the clock was still ahead.
#[tokio::test]
async fn they_rise_when_a_clock_that_was_ahead_is_set_right() {
    const HOUR: Duration = Duration::from_secs(3600);
    const IDLE: Duration = Duration::from_secs(60);
    for watched in [false, true] {
        let server = Redis::with().clock_shim().start().unwrap();
        let url = format!("{}/?remember=1s", server.url());
        let mut last = 0;
        let mut next = async || {
            // A client that has seen nothing yet.
            let client = Client::open(&url).await.unwrap();
            let _events = match watched {
                true => Some(client.store.events("").await.unwrap()),
                false => None,
            };
            let number = pair(&client).await;
            assert!(number > last, "{number} after {last}");
            last = number;
        };
        server.step_clock(HOUR, Step::Forward).unwrap();
        next().await;
        next().await;
        server.step_clock(IDLE, Step::Forward).unwrap();
        let forgotten = || server.cli(&["EXISTS", "clinch:{clinch:a}"]).unwrap() == "0";
        assert!(forgotten());
        server.step_clock(HOUR, Step::Back).unwrap();
        for _ in 0..3 {
            next().await;
            server.step_clock(IDLE, Step::Forward).unwrap();
            assert!(forgotten());
        }
        server.step_clock(HOUR * 2, Step::Forward).unwrap();
        next().await;
    }
}

/// The user may use the lock and not the key of the highest number, or only read it. The clock was ahead and is
/// right again: the name is kept until the clock has passed its last number, as on a cluster.
#[tokio::test]
async fn they_rise_for_a_user_who_may_not_write_the_highest_number() {
    const HOUR: Duration = Duration::from_secs(3600);
    const IDLE: Duration = Duration::from_secs(60);
    for (user, watched) in [
        ("none", false),
        ("none", true),
        ("read", false),
        ("read", true),
    ] {
        let rules = "~clinch:{clinch:a} &* +@all";
        let server = Redis::with()
            .clock_shim()
            .user("none", "pw", rules)
            .user("read", "pw", &format!("%R~clinch:{{clinch:}}* {rules}"))
            .start()
            .unwrap();
        let url = format!("{}/?remember=1s", server.url_as(user, "pw"));
        let mut last = 0;
        let mut next = async || {
            let client = Client::open(&url).await.unwrap();
            let _events = match watched {
                true => Some(client.store.events("").await.unwrap()),
                false => None,
            };
            let number = pair(&client).await;
            assert!(number > last, "{number} after {last}: {user}");
            last = number;
        };
        server.step_clock(HOUR, Step::Forward).unwrap();
        next().await;
        server.step_clock(HOUR, Step::Back).unwrap();
        for _ in 0..3 {
            next().await;
            server.step_clock(IDLE, Step::Forward).unwrap();
        }
        next().await;
    }
}
