//! Full disks and damaged records.

use super::*;

#[tokio::test]
async fn a_full_disk_grants_nothing_and_heals() {
    let machine = Machine::new();
    let (store, identity) = machine.open();
    pair(&store, &identity, "warm").await;
    let limit = |pages: u32| {
        store.batcher.with_database(|database| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            database
                .connection()
                .query_row(&sql, [], |_| Ok(()))
                .unwrap();
        });
    };
    limit(1);
    let mut full = None;
    for n in 0..2000 {
        let mut big = claim(&identity, &format!("n{n}"));
        big.value = Some("x".repeat(1000).into());
        match store.claim(&big).await {
            Ok(reply) => assert!(matches!(reply, ClaimReply::Granted(_))),
            Err(error) => {
                full = Some((big, error));
                break;
            }
        }
    }
    let (big, error) = full.expect("the disk never got full");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    assert!(!error.may_have_taken_effect());
    assert!(store.inspect(&big.name).await.unwrap().is_none());
    limit(u32::MAX / 2);
    granted(&store, &big).await;
}

/// Ways in which a record of `bad` can be damaged.
const DAMAGES: [&str; 4] = [
    "UPDATE names SET state = x'01ff' WHERE name = 'bad'",
    "UPDATE names SET state = 'no blob' WHERE name = 'bad'",
    "UPDATE waiters SET entry = x'00' WHERE id = (SELECT id FROM names WHERE name = 'bad')",
    "UPDATE names SET waiting = 'many' WHERE name = 'bad'",
];

#[tokio::test]
async fn a_damaged_record_is_reported_and_harms_no_other() {
    for damage in DAMAGES {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        // On both sides of the damaged one, by name and by row.
        let (before, bad) = (claim(&identity, "a"), claim(&identity, "bad"));
        let first = granted(&store, &before).await;
        let held = granted(&store, &bad).await;
        let queued = store.claim(&claim(&identity, "bad")).await.unwrap();
        assert!(matches!(queued, ClaimReply::Queued(_)));
        let after = claim(&identity, "c");
        granted(&store, &after).await;
        let changed = machine.sql(damage);
        assert_eq!(changed, 1, "{damage}");

        let (again, good) = (claim(&identity, "bad"), claim(&identity, "good"));
        let (again, good) = tokio::join!(store.claim(&again), store.claim(&good));
        let error = again.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        assert!(error.to_string().contains("bad"), "{error}");
        assert!(matches!(good.unwrap(), ClaimReply::Granted(_)));
        for outcome in [
            store.release(&bad.hold(held.seq)).await.map(drop),
            store.inspect(&bad.name).await.map(drop),
            store.check(&bad.name, held.seq).await.map(drop),
            store.evict(&bad.name, None).await.map(drop),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corrupt, "{damage}");
        }

        let listed = store.list("").await.unwrap();
        let names: Vec<&str> = listed.iter().map(|lock| lock.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "good"], "{damage}");
        assert!(store.list("bad").await.unwrap().is_empty());
        let findings = store.doctor().await.unwrap();
        let records = findings.iter().find(|f| f.subject == "records").unwrap();
        assert_eq!(records.severity, Severity::Broken);
        assert!(records.message.contains("1 of 4"), "{records:?}");
        assert!(records.message.contains("bad") && records.advice.is_some());

        let renewal = |claim: &Claim, grant: &Grant| Renewal {
            hold: claim.hold(grant.seq),
            lease: Duration::from_secs(30),
            value: None,
        };
        let renewals = [renewal(&bad, &held), renewal(&before, &first)];
        let replies = store.renew(&renewals).await.unwrap();
        let lost = RenewReply::Lost(LostReason::Forgotten);
        assert_eq!(replies, [lost, RenewReply::Held]);
        store.close().await.unwrap();
        let (other, identity) = machine.open();
        for name in ["a", "c", "good"] {
            granted(&other, &claim(&identity, name)).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_record_stops_neither_cleanup_nor_the_first_open_after_a_reboot() {
    for damage in DAMAGES {
        let machine = Machine::new();
        let (store, identity) = machine.open();
        pair(&store, &identity, "idle-1").await;
        granted(&store, &claim(&identity, "bad")).await;
        store.claim(&claim(&identity, "bad")).await.unwrap();
        pair(&store, &identity, "idle-2").await;
        let mut held = claim(&identity, "held");
        held.lease = Duration::from_secs(86_400);
        let grant = granted(&store, &held).await;
        machine.sql(damage);

        machine.hand.advance(Duration::from_secs(3600));
        clean(&store).await;
        let left = "SELECT count(*) FROM names WHERE name LIKE 'idle%'";
        assert_eq!(machine.count(left), 0, "{damage}");
        assert_eq!(machine.count("SELECT count(*) FROM names"), 2);

        machine.reboot();
        let ceiling = machine.meta("ceiling");
        let (new, identity) = machine.open();
        let next = granted(&new, &claim(&identity, "held")).await;
        assert!(next.seq > ceiling && ceiling > grant.seq);
        assert_eq!(next.predecessor.unwrap().ending, Ending::Expired);
        let error = new.claim(&claim(&identity, "bad")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
    }
}
