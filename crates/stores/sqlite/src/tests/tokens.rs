//! Tokens rise across reboots, clock steps, removed names and deleted files.

use super::*;

#[tokio::test]
async fn a_reboot_ends_holds_keeps_delays_and_raises_tokens() {
    let machine = Machine::new();
    let (old, identity) = machine.open();
    let plain = claim(&identity, "plain");
    let first = granted(&old, &plain).await;
    let mut delayed = claim(&identity, "delayed");
    delayed.lock_delay = Duration::from_secs(60);
    granted(&old, &delayed).await;
    let idle = pair(&old, &identity, "idle").await;
    // A power cut: nothing is released, the wall clock falls back, and the tail of the log may be
    // lost, so tokens must start above the ceiling whatever the rows say.
    machine.reboot();
    let ceiling = machine.meta("ceiling");
    machine.micros.store(5, Ordering::SeqCst);
    let (new, identity) = machine.open();

    let grant = granted(&new, &claim(&identity, "plain")).await;
    assert!(grant.seq > ceiling && ceiling > first.seq);
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Expired);
    assert!(pair(&new, &identity, "idle").await > idle.max(ceiling));

    let mut waiting = claim(&identity, "delayed");
    waiting.lease = Duration::from_secs(300);
    let reply = new.claim(&waiting).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
    machine.hand.advance(Duration::from_secs(61));
    granted(&new, &waiting).await;
    // The hold of the old client has ended.
    let renewal = Renewal::new(plain.hold(first.seq), Duration::from_secs(30));
    let replies = old.renew(&[renewal]).await.unwrap();
    assert!(matches!(replies[0], RenewReply::Lost(_)));
}

#[tokio::test]
async fn tokens_rise_when_the_wall_clock_steps_back_and_names_are_forgotten() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mut last = pair(&store, &identity, "n").await;
    for step in [1_000_000, 500_000_000, 999_000_000_000] {
        // The name is removed: it was idle for long.
        machine.hand.advance(Duration::from_secs(3600));
        clean(&store).await;
        assert!(store.list("").await.unwrap().is_empty());
        let rows = machine.meta("floor");
        assert!(rows >= last, "the floor remembers {rows}, {last} was given");
        machine.micros.fetch_sub(step, Ordering::SeqCst);
        let next = pair(&store, &identity, "n").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        // And another process sees the same.
        let (other, identity) = machine.open();
        let next = pair(&other, &identity, "n").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        assert!(machine.meta("ceiling") > last);
    }
}

#[tokio::test]
async fn only_idle_names_are_forgotten() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mut held = claim(&identity, "held");
    held.lease = Duration::from_secs(86_400);
    granted(&store, &held).await;
    pair(&store, &identity, "idle").await;
    let rows = || {
        let db = rusqlite::Connection::open(machine.db()).unwrap();
        db.query_row("SELECT count(*) FROM names", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    clean(&store).await;
    assert_eq!(rows(), 2, "what was used a moment ago is remembered");
    machine.hand.advance(Duration::from_secs(3600));
    clean(&store).await;
    assert_eq!(rows(), 1);
    assert_eq!(store.list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_deleted_file_loses_holds_but_no_token_order() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    let mine = claim(&identity, "n");
    let grant = granted(&store, &mine).await;
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{end}", machine.db().display())).unwrap();
    }
    machine.micros.store(5, Ordering::SeqCst);
    let renewal = Renewal::new(mine.hold(grant.seq), Duration::from_secs(30));
    let replies = store.renew(&[renewal]).await.unwrap();
    assert_eq!(replies, [RenewReply::Lost(LostReason::Forgotten)]);
    let next = granted(&store, &claim(&identity, "n")).await;
    assert!(next.seq > grant.seq);
    // New clients share the new file.
    let (other, identity) = machine.open();
    let reply = other.claim(&claim(&identity, "n")).await.unwrap();
    assert!(matches!(reply, ClaimReply::Queued(_)), "{reply:?}");
}
