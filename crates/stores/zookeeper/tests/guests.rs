//! Other libraries in the same folder. The driver has a lock of its own in Curator's layout; the others
//! are simulated by the names of their nodes. `interop/zookeeper` runs the libraries themselves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use clinch_core::ErrorKind;
use clinch_core::store::{ClaimReply, Wake};
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, hold, room, shared};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix};

const OPEN: Acls<'static> = Acls::anyone_all();

async fn driver() -> zookeeper_client::Client {
    let server = format!("127.0.0.1:{}", shared().port());
    zookeeper_client::Client::connect(&server).await.unwrap()
}

/// The driver's own lock, which is Curator's by layout, waits for ours and we for it, in order.
#[tokio::test]
async fn a_lock_in_curators_layout_is_shared_in_both_directions() {
    let client = Client::at(&room(&shared().url(), "curator")).await;
    let claim = client.mutex("a", LONG);
    let grant = client.granted(&claim).await;
    let theirs = tokio::spawn(async {
        let driver = driver().await;
        let prefix = LockPrefix::new_curator("/curator/clinch/a", "lock-").unwrap();
        let lock = driver
            .lock(prefix, b"10.0.0.1", LockOptions::new(OPEN))
            .await
            .unwrap();
        let path = lock.lock_path().to_owned();
        (lock.into_owned(), path)
    });
    client.until("a", 1, 1).await;
    // We queue behind it.
    let next = client.mutex("a", LONG);
    client.queued(&next).await;
    let mut wakes = client.store.wakes(&next);
    client.until("a", 1, 2).await;
    assert!(!theirs.is_finished(), "both hold it");
    client.store.release(&hold(&claim, &grant)).await.unwrap();
    let (lock, path) = soon("their turn", theirs).await.unwrap();
    assert!(path.starts_with("/curator/clinch/a/_c_"), "{path}");
    client.until("a", 1, 1).await;
    let view = client.store.inspect(&next.name).await.unwrap().unwrap();
    assert_eq!(view.holders[0].owner.as_str(), "10.0.0.1");
    assert!(view.holders[0].token.is_some());
    let trying = clinch_core::store::Claim {
        queue: false,
        ..client.mutex("a", LONG)
    };
    let tried = client.store.claim(&trying).await.unwrap();
    assert!(matches!(tried, ClaimReply::Busy(_)));
    drop(lock);
    let wake = soon("our turn", wakes.next()).await;
    let Some(Wake::Granted(turn)) = wake else {
        panic!("{wake:?}");
    };
    assert!(turn.seq > grant.seq);
    // Its end is unknown: it writes no folder record.
    assert_eq!(turn.predecessor, None);
}

/// Nodes with another order are refused; the error names their library.
#[tokio::test]
async fn kazoo_and_mixed_folders_are_refused() {
    let client = Client::at(&room(&shared().url(), "mixed")).await;
    let driver = driver().await;
    client.warm_up("a", LONG).await;
    let names = [
        ("0123456789abcdef__lock__", "kazoo"),
        ("0123456789abcdef__rlock__", "kazoo"),
        ("lease-", "no lock"),
    ];
    for (prefix, message) in names {
        let path = format!("/mixed/clinch/a/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(OPEN);
        let (_, sequence) = driver.create(&path, b"", &options).await.unwrap();
        for queue in [true, false] {
            let claim = clinch_core::store::Claim {
                queue,
                ..client.mutex("a", LONG)
            };
            let error = client.store.claim(&claim).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(message), "{error}");
        }
        let error = client
            .store
            .inspect(&client.mutex("a", LONG).name)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        // The rest of the namespace is not in its way, and nothing of ours is left.
        client.warm_up("b", LONG).await;
        assert!(client.store.list("").await.unwrap().is_empty());
        let left = driver.list_children("/mixed/clinch/a").await.unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        driver
            .delete(&format!("{path}{sequence}"), None)
            .await
            .unwrap();
    }
    client.warm_up("a", LONG).await;
}

/// Curator's shared locks are in one queue with ours.
#[tokio::test]
async fn readers_and_writers_of_curator_are_in_our_queue() {
    let client = Client::at(&room(&shared().url(), "shared")).await;
    let driver = driver().await;
    let rights = |units| clinch_core::store::Claim {
        units,
        limit: u32::MAX,
        ..client.mutex("a", LONG)
    };
    let reader = rights(1);
    let first = client.granted(&reader).await;
    let options = CreateMode::EphemeralSequential.with_acls(OPEN);
    let make = async |kind: &str| {
        let path = format!("/shared/clinch/a/_c_5f1c0f1e-0000-4000-8000-000000000000-{kind}");
        let (_, sequence) = driver.create(&path, b"", &options).await.unwrap();
        format!("{path}{sequence}")
    };
    let their_reader = make("__READ__").await;
    client.until("a", 2, 0).await;
    let their_writer = make("__WRIT__").await;
    client.until("a", 2, 1).await;
    // Behind their writer, a reader of ours waits, and enters when it is gone.
    let late = rights(1);
    client.queued(&late).await;
    let mut wakes = client.store.wakes(&late);
    driver.delete(&their_reader, None).await.unwrap();
    client.store.release(&hold(&reader, &first)).await.unwrap();
    client.until("a", 1, 1).await;
    driver.delete(&their_writer, None).await.unwrap();
    let wake = soon("our turn", wakes.next()).await;
    assert!(matches!(wake, Some(Wake::Granted(_))), "{wake:?}");
    // A mutex in the same folder is another use of it.
    let error = client
        .store
        .claim(&client.mutex("a", LONG))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    client.store.withdraw(&late).await.unwrap();
    eventually("all have gone", async || {
        client.store.list("").await.unwrap().is_empty()
    })
    .await;
}
