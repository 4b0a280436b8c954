//! Live events.

use super::*;

#[tokio::test]
async fn events_arrive_in_order_and_from_other_clients() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let mut events = a.store.events("orders/").await.unwrap();
    let claim = b.mutex("orders/1");
    let grant = b.granted(&claim).await;
    b.granted(&b.mutex("elsewhere")).await;
    let waiting = a.mutex("orders/1");
    a.queued(&waiting).await;
    b.store.release(&claim.hold(grant.seq)).await.unwrap();
    a.store.withdraw(&waiting).await.unwrap();
    let mut kinds = Vec::new();
    while kinds.len() < 5 {
        let event = soon(events.next()).await.unwrap();
        assert_eq!(event.name.as_str(), "orders/1");
        kinds.push(event.kind);
    }
    use EventKind::{Granted, Queued, Released};
    assert_eq!(kinds, [Granted, Queued, Released, Granted, Released]);
    a.store.close().await.unwrap();
    assert!(soon(events.next()).await.is_none());
}

#[tokio::test]
async fn without_watchers_there_are_no_event_rows() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let rows = || {
        let db = rusqlite::Connection::open(folder.db()).unwrap();
        let sql = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM watchers)";
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    a.granted(&a.mutex("n")).await;
    assert_eq!(rows(), 0);
    let events = a.store.events("").await.unwrap();
    b.granted(&b.mutex("m")).await;
    assert_eq!(rows(), 2);
    let mut second = a.store.events("").await.unwrap();
    drop(events);
    // The end of the first one ends nothing for the second one.
    for number in 0..20 {
        b.granted(&b.mutex(&format!("m{number}"))).await;
        let event = soon(second.next()).await.unwrap();
        assert_eq!(event.name.as_str(), format!("m{number}"));
    }
    drop(second);
    eventually("no client watches", async || rows() == 0).await;
    let _third = a.store.events("").await.unwrap();
    assert_eq!(rows(), 1);
    a.store.close().await.unwrap();
    assert_eq!(rows(), 0);
}
