//! What proves a reboot, and what does not.

use super::*;

fn set_meta(machine: &Machine, key: &str, value: impl rusqlite::ToSql) {
    let db = rusqlite::Connection::open(machine.db()).unwrap();
    crate::sequence::set(&db, key, value).unwrap();
}

fn later() -> i64 {
    let later = Clock::boot().now() + Duration::from_secs(3600);
    i64::try_from(later.as_nanos()).unwrap()
}

#[tokio::test]
async fn another_boot_id_ends_nothing() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    for _ in 0..3 {
        // A container with an id of its own was here last.
        set_meta(&machine, "boot", "of-a-container");
        let (other, rival) = machine.open();
        let reply = other.claim(&claim(&rival, "n")).await.unwrap();
        assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    }
    // Also if no client can see that the holder runs.
    fs::remove_dir_all(machine.sessions()).unwrap();
    set_meta(&machine, "boot", "of-a-container");
    let (other, _) = machine.open();
    assert!(
        other
            .check(&mine.name, grant.seq)
            .await
            .unwrap()
            .is_current()
    );
    drop(store);
}

#[tokio::test]
async fn a_client_that_runs_is_never_taken_for_one_of_another_boot() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    // A time namespace, say: the clock of the other one is behind.
    set_meta(&machine, "clock", later());
    set_meta(&machine, "boot", "before");
    let (other, rival) = machine.open();
    let reply = other.claim(&claim(&rival, "n")).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    let renewal = Renewal::new(mine.hold(grant.seq), Duration::from_secs(30));
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [RenewReply::Held]);
}

#[tokio::test]
async fn the_boot_clock_alone_proves_a_reboot() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let grant = granted(&store, &claim(&identity, "n")).await;
    assert!(machine.meta("clock") > 0, "it is written with the ceiling");
    set_meta(&machine, "clock", later());
    fs::remove_dir_all(machine.sessions()).unwrap();
    let ceiling = machine.meta("ceiling");
    machine.micros.store(5, Ordering::SeqCst);
    let (other, rival) = machine.open();
    let next = granted(&other, &claim(&rival, "n")).await;
    assert!(next.seq > ceiling && ceiling > grant.seq);
}

#[tokio::test]
async fn an_id_that_was_not_seen_before_raises_tokens_unless_a_holder_runs() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let first = pair(&store, &identity, "n").await;
    let ceiling = machine.meta("ceiling");
    drop(store);
    // A boot that has lasted for longer than the one before, after a power cut.
    set_meta(&machine, "boot", "before");
    machine.micros.store(5, Ordering::SeqCst);
    let (store, identity) = machine.open();
    let next = pair(&store, &identity, "n").await;
    assert!(next > ceiling && ceiling > first);
    // With a holder that runs it was no reboot.
    granted(&store, &claim(&identity, "held")).await;
    let ceiling = machine.meta("ceiling");
    set_meta(&machine, "boot", "of-a-container");
    let (other, rival) = machine.open();
    assert!(pair(&other, &rival, "n").await < ceiling);
}
