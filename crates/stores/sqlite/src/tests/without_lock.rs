//! Renewals while another process keeps the writer's lock.

use super::*;
use crate::renew;

/// Another process in a transaction.
fn writer(machine: &Machine) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(machine.db()).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

fn renewal(claim: &Claim, grant: &Grant) -> Renewal {
    Renewal {
        hold: claim.hold(grant.seq),
        lease: claim.lease,
        value: None,
    }
}

async fn renewed(store: &SqliteStore, renewal: &Renewal) -> RenewReply {
    store.renew(std::slice::from_ref(renewal)).await.unwrap()[0]
}

/// `None` if it is not held.
async fn renewed_if(store: &SqliteStore, renewal: &Renewal) -> Option<()> {
    let replies = store.renew(std::slice::from_ref(renewal)).await;
    matches!(replies.as_deref(), Ok([RenewReply::Held])).then_some(())
}

#[tokio::test]
async fn a_hold_outlives_any_number_of_leases_while_another_process_writes() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let (other, rival) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let blocking = writer(&machine);
    for _ in 0..8 {
        machine.hand.advance(Duration::from_secs(20));
        assert_eq!(
            renewed(&store, &renewal(&mine, &grant)).await,
            RenewReply::Held
        );
    }
    blocking.execute_batch("ROLLBACK").unwrap();
    // 160 s later, and the database still has the first lease of 30 s.
    clean(&other).await;
    let reply = other.claim(&claim(&rival, "n")).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    assert!(
        other
            .check(&mine.name, grant.seq)
            .await
            .unwrap()
            .is_current()
    );
    let views = other.list("").await.unwrap();
    assert_eq!(views[0].holders.len(), 1);
    assert_eq!(
        renewed(&store, &renewal(&mine, &grant)).await,
        RenewReply::Held
    );
    // Without a further renewal it ends a lease later.
    machine.hand.advance(Duration::from_secs(31));
    assert!(
        !other
            .check(&mine.name, grant.seq)
            .await
            .unwrap()
            .is_current()
    );
}

#[tokio::test]
async fn a_renewal_is_tried_however_short_others_are_waited_for() {
    let machine = Machine::new();
    // Shorter than a renewal waits before it is made without the writer's lock.
    let (store, identity) = machine.open_with("?busy=10ms");
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let blocking = writer(&machine);
    for _ in 0..5 {
        machine.hand.advance(Duration::from_secs(20));
        // A claim that gives up takes no renewal with it.
        let (other, renewal) = (claim(&identity, "else"), renewal(&mine, &grant));
        let (claimed, renewed) = tokio::join!(store.claim(&other), renewed(&store, &renewal));
        assert_eq!(claimed.unwrap_err().kind(), ErrorKind::Unreachable);
        assert_eq!(renewed, RenewReply::Held);
    }
    drop(blocking);
}

#[tokio::test]
async fn a_renewal_that_cannot_be_read_does_not_count() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let later = machine.clock.now() + Duration::from_secs(60);
    let wrote = store.batcher.with_database(|database| {
        fs::remove_dir_all(machine.sessions()).unwrap();
        let sessions = &mut database.sessions;
        let wrote = sessions.renew(&[(mine.request, later)], machine.clock.now());
        assert_eq!(sessions.own_renewal(mine.request), None);
        wrote
    });
    assert!(!wrote);
    // So it cannot be extended after others have seen it end.
    let blocking = writer(&machine);
    machine.hand.advance(Duration::from_secs(31));
    assert_eq!(renewed_if(&store, &renewal(&mine, &grant)).await, None);
    drop(blocking);
}

#[tokio::test]
async fn a_renewal_beside_the_database_comes_too_late_after_the_lease() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let blocking = writer(&machine);
    machine.hand.advance(Duration::from_secs(31));
    let reply = renewed(&store, &renewal(&mine, &grant)).await;
    assert_eq!(
        reply,
        RenewReply::Unknown,
        "another client may be ending it"
    );
    drop(blocking);
}

#[tokio::test]
async fn an_evicted_hold_is_reported_lost_while_another_process_writes() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let (other, _) = machine.open();
    let (mine, second) = (claim(&identity, "n"), claim(&identity, "second"));
    let grant = granted(&store, &mine).await;
    let kept = granted(&store, &second).await;
    other.evict(&mine.name, None).await.unwrap();
    let blocking = writer(&machine);
    let batch = [renewal(&mine, &grant), renewal(&second, &kept)];
    let replies = store.renew(&batch).await.unwrap();
    assert_eq!(replies[0], RenewReply::Lost(LostReason::Evicted));
    assert_eq!(replies[1], RenewReply::Held);
    drop(blocking);
}

#[tokio::test]
async fn renewals_that_were_lost_with_a_session_file_are_waited_for() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let (other, rival) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let blocking = writer(&machine);
    machine.hand.advance(Duration::from_secs(25));
    assert_eq!(
        renewed(&store, &renewal(&mine, &grant)).await,
        RenewReply::Held
    );
    drop(blocking);
    fs::remove_dir_all(machine.sessions()).unwrap();
    // The lease ends after 30 s in the database, and after 55 s in the file that is lost.
    machine.hand.advance(Duration::from_secs(10));
    let mut waiting = claim(&rival, "n");
    waiting.lease = Duration::from_secs(300);
    for _ in 0..2 {
        let reply = other.claim(&waiting).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
        machine.hand.advance(Duration::from_secs(15));
    }
    // One lease after the file was missed first.
    machine.hand.advance(Duration::from_secs(1));
    granted(&other, &waiting).await;
}

#[tokio::test]
async fn a_session_file_that_is_made_again_has_the_renewals_in_it() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let (other, rival) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let blocking = writer(&machine);
    machine.hand.advance(Duration::from_secs(25));
    assert_eq!(
        renewed(&store, &renewal(&mine, &grant)).await,
        RenewReply::Held
    );
    fs::remove_dir_all(machine.sessions()).unwrap();
    store
        .batcher
        .with_database(|database| database.sessions.restore());
    // Not before the database says that it is there: the client that missed it counts from then.
    let before = store
        .batcher
        .with_database(|database| database.sessions.can_renew());
    assert!(!before);
    drop(blocking);
    machine.hand.advance(Duration::from_secs(10));
    let reply = other.claim(&claim(&rival, "n")).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    pair(&store, &identity, "else").await;
    let after = store
        .batcher
        .with_database(|database| database.sessions.can_renew());
    assert!(after);
}

#[tokio::test]
async fn a_lease_that_ends_while_it_is_renewed_is_not_counted_on() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    let renewal = renewal(&mine, &grant);
    let (start, reads) = (machine.clock.now(), AtomicU64::new(0));
    // The process is stopped between its first read of the clock and its last.
    let now = |pause| match reads.fetch_add(1, Ordering::SeqCst) {
        0 => start,
        _ => start + Duration::from_secs(pause),
    };
    for (pause, reply) in [(29, RenewReply::Held), (31, RenewReply::Unknown)] {
        reads.store(0, Ordering::SeqCst);
        let replies = store.batcher.with_database(|database| {
            let db = rusqlite::Connection::open(machine.db()).unwrap();
            let load = |one: &Renewal| renew::load(&db, &machine.db(), "clinch", one);
            renew::renew_without_lock(
                std::slice::from_ref(&renewal),
                &mut database.sessions,
                load,
                || now(pause),
            )
        });
        assert_eq!(replies.unwrap(), [reply]);
    }
}
