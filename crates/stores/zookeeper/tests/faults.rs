//! Replies are lost, connections cut, sessions closed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::{ClaimReply, Ending, ReleaseReply, RenewReply, Wake};
use clinch_core::{Clock, LostReason, Status};
use clinch_testkit::proxy::{Direction, Flow, Frame, Splitter, Then, jute};
use clinch_testkit::wait::{eventually, soon};
use common::{
    Client, LONG, clinch, hold, number, operations, proxy, proxy_with, renewal, room, shared,
    through,
};

/// The node exists and the reply was lost: the client finds its node by name and does not create a second
/// one.
#[tokio::test]
async fn a_lost_reply_of_create_is_found_again() {
    let proxy = proxy(shared()).await;
    // In a folder that it was the last to use, a claim is one transaction; elsewhere it is get, create, list.
    let rounds = [
        ("a", 1, Then::Reset),
        ("a", 1, Then::Stay),
        ("b", 2, Then::Reset),
        ("b", 2, Then::Stay),
    ];
    for (round, (warm, answer, then)) in rounds.into_iter().enumerate() {
        let folder = format!("create-{round}");
        let client = Client::at(&through(&proxy, &folder)).await;
        let other = Client::at(&room(&shared().url(), &folder)).await;
        other.warm_up("a", LONG).await;
        client.warm_up(warm, LONG).await;
        let claim = client.mutex("a", LONG);
        proxy.links().last().unwrap().swallow(answer, then);
        let unknown = client.store.claim(&claim).await.unwrap_err();
        assert!(unknown.may_have_taken_effect(), "{unknown}");
        other.until("a", 1, 0).await;
        let grant = soon("the claim", async {
            loop {
                match client.store.claim(&claim).await {
                    Ok(ClaimReply::Granted(grant)) => return grant,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        })
        .await;
        other.until("a", 1, 0).await;
        assert!(
            other
                .store
                .check(&claim.name, grant.seq)
                .await
                .unwrap()
                .is_current()
        );
        let end = client.store.release(&hold(&claim, &grant)).await.unwrap();
        assert_eq!(end, ReleaseReply::Released);
        other.until("a", 0, 0).await;
    }
}

/// Dropped between the request and the reply: a withdrawal finds the node.
#[tokio::test]
async fn a_withdrawal_finds_a_node_whose_reply_was_lost() {
    let proxy = proxy(shared()).await;
    let client = Client::at(&through(&proxy, "withdrawn")).await;
    let other = Client::at(&room(&shared().url(), "withdrawn")).await;
    client.warm_up("a", LONG).await;
    let claim = client.mutex("a", LONG);
    proxy.links().last().unwrap().swallow(1, Then::Reset);
    client.store.claim(&claim).await.unwrap_err();
    other.until("a", 1, 0).await;
    soon("the withdrawal", async {
        while let Err(error) = client.store.withdraw(&claim).await {
            assert!(error.is_temporary(), "{error}");
        }
    })
    .await;
    other.until("a", 0, 0).await;
    let late = client.store.claim(&claim).await.unwrap();
    assert_eq!(late, ClaimReply::Gone(LostReason::Released));
    other.until("a", 0, 0).await;
}

#[tokio::test]
async fn a_lost_reply_of_a_release_is_a_release() {
    let proxy = proxy(shared()).await;
    let client = clinch(&through(&proxy, "release")).await;
    let other = Client::at(&room(&shared().url(), "release")).await;
    let guard = client.lock("a").lease(LONG).acquire().await.unwrap();
    proxy.links().last().unwrap().swallow(1, Then::Reset);
    let end = soon("the release", guard.release()).await.unwrap();
    assert_eq!(end, ReleaseReply::Released);
    other.until("a", 0, 0).await;
}

/// The claim ahead ends while the listing is under way: there is no node to watch.
#[tokio::test]
async fn a_predecessor_that_goes_between_list_and_watch_is_no_trap() {
    let proxy = proxy(shared()).await;
    let (one, two) = (
        Client::at(&room(&shared().url(), "between")).await,
        Client::at(&through(&proxy, "between")).await,
    );
    two.warm_up("warm", LONG).await;
    let (held, waiting) = (one.mutex("a", LONG), two.mutex("a", LONG));
    let grant = one.granted(&held).await;
    // Answers to get, create and list; the last one waits in the network.
    let link = proxy.links().pop().unwrap();
    link.swallow(3, Then::Hold);
    let mut wakes = two.store.wakes(&waiting);
    let release = async {
        one.until("a", 1, 1).await;
        one.store.release(&hold(&held, &grant)).await.unwrap();
        one.until("a", 1, 0).await;
        link.flow(Direction::Down, Flow::Pass);
    };
    let (reply, ()) = tokio::join!(two.store.claim(&waiting), release);
    // The reply is the state at the listing.
    assert!(matches!(reply.unwrap(), ClaimReply::Queued(q) if q.ahead == 0));
    let wake = soon("the turn", wakes.next()).await;
    let Some(Wake::Granted(turn)) = wake else {
        panic!("{wake:?}");
    };
    let before = turn.predecessor.unwrap();
    assert_eq!((before.ending, before.seq), (Ending::Released, grant.seq));
}

/// The claim ahead ends while the waiter has no connection: the servers send the event afterwards. Nothing
/// is repeated here, so the watch alone reports the turn.
#[tokio::test]
async fn a_watch_that_fires_while_disconnected_is_delivered_later() {
    let proxy = proxy(shared()).await;
    let (one, two) = (
        Client::at(&room(&shared().url(), "disconnected")).await,
        Client::at(&through(&proxy, "disconnected")).await,
    );
    let (held, waiting) = (one.mutex("a", LONG), two.mutex("a", LONG));
    let grant = one.granted(&held).await;
    two.queued(&waiting).await;
    let mut wakes = two.store.wakes(&waiting);
    let sent = operations(&two);
    eventually("the watch is set", async || operations(&two) >= sent).await;
    proxy.down();
    eventually("it is cut off", async || proxy.open() == 0).await;
    one.store.release(&hold(&held, &grant)).await.unwrap();
    one.until("a", 1, 0).await;
    proxy.heal();
    let wake = soon("the turn", wakes.next()).await;
    assert!(matches!(wake, Some(Wake::Granted(_))), "{wake:?}");
}

/// Suspect while there is no connection, and lost at the deadline, which is before the ensemble grants the
/// lock to another client.
#[tokio::test]
async fn a_holder_that_is_cut_off_is_suspect_and_then_lost() {
    let lease = Duration::from_secs(2);
    let proxy = proxy(shared()).await;
    let cut = clinch(&through(&proxy, "cut")).await;
    let other = clinch(&room(&shared().url(), "cut")).await;
    let guard = cut.lock("a").lease(lease).acquire().await.unwrap();
    proxy.down();
    eventually("it is suspected", async || {
        guard.status() == Status::Suspect || !guard.is_valid()
    })
    .await;
    let lock = other.lock("a").lease(LONG);
    let next = soon("the next", lock.acquire()).await.unwrap();
    assert!(!guard.is_valid(), "both are valid");
    assert!(number(&next) > number(&guard));
    let before = next.predecessor().unwrap();
    assert_eq!(
        (before.ending, before.seq),
        (Ending::Expired, number(&guard))
    );
}

/// Captures the reply to the opening of a session: its id and its password.
fn capturing(seen: Arc<Mutex<Vec<Vec<u8>>>>) -> Splitter {
    let inner = jute();
    Arc::new(move || {
        let (mut split, seen) = (inner(), seen.clone());
        let mut first = true;
        Box::new(move |bytes: &[u8]| {
            let frames: Vec<Frame> = split(bytes);
            if let Some(frame) = frames.first()
                && std::mem::take(&mut first)
            {
                seen.lock().unwrap().push(frame.bytes.clone());
            }
            frames
        })
    })
}

/// Ends the session of a greeting from outside.
fn close_session(greeting: &[u8]) {
    // length 4, version 4, timeout 4, session 8
    let id = u64::from_be_bytes(greeting[12..20].try_into().unwrap());
    assert!(shared().close_session(id).unwrap());
}

#[tokio::test]
async fn a_session_that_is_closed_from_outside_loses_its_holds() {
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let proxy = proxy_with(shared(), capturing(seen.clone())).await;
    let url = through(&proxy, "closed");
    let (client, whole) = (Client::at(&url).await, clinch(&url).await);
    let other = Client::at(&room(&shared().url(), "closed")).await;
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    let greetings = |from: usize| {
        // Both directions are captured; a server's greeting is shorter than a client's.
        let seen = seen.lock().unwrap();
        let all: Vec<_> = seen
            .iter()
            .filter(|frame| frame.len() < 45)
            .cloned()
            .collect();
        all[from..].to_vec()
    };
    // The third: each client has one for itself, then the claim's own.
    let mine = greetings(0).pop().unwrap();
    close_session(&mine);
    other.until("a", 0, 0).await;
    let reply = soon("the reply", async {
        loop {
            match client.store.renew(&[renewal(&claim, &grant)]).await {
                Ok(replies) => return replies[0],
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    })
    .await;
    assert_eq!(reply, RenewReply::Lost(LostReason::Expired));
    // New claims get a session of their own.
    let again = client.mutex("a", LONG);
    let newer = client.granted(&again).await;
    assert!(newer.seq > grant.seq);
    client.store.release(&hold(&again, &newer)).await.unwrap();
    // The same for a whole client: the guard learns of it with the next renewal.
    let lease = Duration::from_secs(3);
    let before = greetings(0).len();
    let guard = whole.lock("b").lease(lease).acquire().await.unwrap();
    let mine = greetings(before).pop().unwrap();
    close_session(&mine);
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired);
    drop(guard);
    let lock = whole.lock("b").lease(lease);
    assert!(
        soon("a new session", lock.acquire())
            .await
            .unwrap()
            .is_valid()
    );
}

/// Each length of lease has a session, and each session a connection. One that is silent costs only its own
/// holds: the others are renewed, and get their reply before a third of the shortest lease has passed.
#[tokio::test]
async fn a_session_that_is_silent_costs_no_hold_of_another() {
    let lease = Duration::from_secs(12);
    let proxy = proxy(shared()).await;
    let url = format!("zookeeper://{}/silent?tick=200ms&timeout=30s", proxy.addr());
    let client = Client::at(&url).await;
    let (silent, well) = (client.mutex("a", LONG), client.mutex("b", lease));
    let grants = (client.granted(&silent).await, client.granted(&well).await);
    // The first link is the one that belongs to no claim.
    proxy.links()[1].flow(Direction::Down, Flow::Blackhole);
    let before = Clock::boot().now();
    let renewals = [renewal(&silent, &grants.0), renewal(&well, &grants.1)];
    let renewed = client.store.renew(&renewals).await.unwrap();
    assert_eq!(renewed, [RenewReply::Unknown, RenewReply::Held]);
    assert!(Clock::boot().now() < before + lease / 3, "too late");
}

/// A longer lease needs another session, which cannot be opened now.
#[tokio::test]
async fn a_hold_that_cannot_move_costs_no_other() {
    let proxy = proxy(shared()).await;
    let client = Client::at(&through(&proxy, "stays")).await;
    let (longer, well) = (client.mutex("a", LONG / 4), client.mutex("b", LONG / 4));
    let grants = (client.granted(&longer).await, client.granted(&well).await);
    proxy.refuse(true);
    let longer = clinch_core::store::Renewal {
        lease: LONG,
        ..renewal(&longer, &grants.0)
    };
    let renewals = [longer, renewal(&well, &grants.1)];
    let renewed = client.store.renew(&renewals).await.unwrap();
    assert_eq!(renewed, [RenewReply::Unknown, RenewReply::Held]);
    proxy.refuse(false);
    let renewed = client.store.renew(&renewals).await.unwrap();
    assert_eq!(renewed, [RenewReply::Held, RenewReply::Held]);
}

/// No claim waits when the hold expires: the folder record still has its token. Also if the holder had
/// waited before.
#[tokio::test]
async fn an_expiry_without_waiters_is_reported_to_the_next_holder() {
    let lease = Duration::from_secs(1);
    let other = Client::at(&room(&shared().url(), "unseen")).await;
    for round in 0..3 {
        let proxy = proxy(shared()).await;
        let dying = Client::at(&through(&proxy, "unseen")).await;
        if round == 1 {
            // The folder is in its cache, and it claims without a listing.
            dying.warm_up("a", lease).await;
        }
        let gate = other.mutex("a", LONG);
        let opening = match round {
            2 => Some(other.granted(&gate).await),
            _ => None,
        };
        let claim = dying.mutex("a", lease);
        let seq = match &opening {
            None => dying.granted(&claim).await.seq,
            Some(opening) => {
                dying.queued(&claim).await;
                let mut wakes = dying.store.wakes(&claim);
                other.store.release(&hold(&gate, opening)).await.unwrap();
                let Some(Wake::Granted(turn)) = soon("the turn", wakes.next()).await else {
                    panic!("not granted");
                };
                turn.seq
            }
        };
        eventually("the folder record says that it holds", async || {
            folder_record("/unseen/clinch/a").await.contains("holding")
        })
        .await;
        proxy.down();
        other.until("a", 0, 0).await;
        let next = other.mutex("a", LONG);
        let grant = other.granted(&next).await;
        let before = grant.predecessor.clone().unwrap();
        assert_eq!((before.ending, before.seq), (Ending::Expired, seq));
        other.store.release(&hold(&next, &grant)).await.unwrap();
    }
}

/// The data of a folder.
async fn folder_record(folder: &str) -> String {
    let server = format!("127.0.0.1:{}", shared().port());
    let driver = zookeeper_client::Client::connect(&server).await.unwrap();
    let (data, _) = driver.get_data(folder).await.unwrap();
    String::from_utf8(data).unwrap()
}
