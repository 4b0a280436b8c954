//! Processes that die.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

/// Holds a lock until it is killed, when a test below starts it so.
#[tokio::test]
async fn helper_that_holds() {
    let Some(path) = std::env::var_os("CLINCH_TEST_HOLD") else {
        return;
    };
    let client = Client::open(path.as_ref(), Clock::boot()).unwrap();
    // Held, or waited for if another client has it.
    for wanted in ["n", "second"] {
        client.store.claim(&client.mutex(wanted)).await.unwrap();
    }
    println!("\nready");
    std::future::pending::<()>().await;
}

fn holder(folder: &Folder) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "deaths::helper_that_holds", "--nocapture"])
        .env("CLINCH_TEST_HOLD", folder.db())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "ready"));
    child
}

#[tokio::test]
async fn a_killed_holder_is_noticed_without_polling() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    let client = folder.client();
    let waiting = client.mutex("n");
    let mut wakes = client.store.wakes(&waiting);
    client.queued(&waiting).await;
    child.kill().unwrap();
    assert_eq!(soon(wakes.next()).await, Some(Wake::Hint));
    let grant = client.granted(&waiting).await;
    assert_eq!(grant.predecessor.unwrap().ending, Ending::Expired);
    child.wait().unwrap();
}

#[tokio::test]
async fn a_grant_passes_over_a_dead_waiter() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    let first = a.mutex("n");
    let grant = a.granted(&first).await;
    let mut child = holder(&folder);
    let third = b.mutex("n");
    let mut wakes = b.store.wakes(&third);
    assert_eq!(b.queued(&third).await.ahead, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // The waiter ahead has died; that is a hint too, and the place improves by itself.
    assert_eq!(soon(wakes.next()).await, Some(Wake::Hint));
    a.store.release(&first.hold(grant.seq)).await.unwrap();
    assert!(matches!(soon(wakes.next()).await, Some(Wake::Granted(_))));
}

#[tokio::test]
async fn the_dead_are_not_listed_and_not_current() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    let client = folder.client();
    let locks = client.store.list("n").await.unwrap();
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].holders[0].pid, child.id());
    let seq = locks[0].holders[0].token.unwrap().seq();
    assert!(
        client
            .store
            .check(&name("n"), seq)
            .await
            .unwrap()
            .is_current()
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !client
            .store
            .check(&name("n"), seq)
            .await
            .unwrap()
            .is_current()
    );
    assert!(client.store.list("").await.unwrap().is_empty());
    assert!(client.store.inspect(&name("n")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_removed_session_folder_does_not_kill_the_living() {
    let folder = Folder::new();
    let mut child = holder(&folder);
    std::fs::remove_dir_all(folder.0.join("locks.db.sessions")).unwrap();
    let client = folder.client();
    client.queued(&client.mutex("n")).await;
    let views = client.store.list("n").await.unwrap();
    assert_eq!(views[0].holders[0].pid, child.id());
    // Without the file its death cannot be seen, so the lease decides.
    child.kill().unwrap();
    child.wait().unwrap();
    let views = client.store.list("n").await.unwrap();
    assert_eq!(views[0].holders[0].pid, child.id());
}

#[tokio::test]
async fn a_death_that_was_found_on_one_name_is_known_on_every_other() {
    let folder = Folder::new();
    let (mut child, client) = (holder(&folder), folder.client());
    child.kill().unwrap();
    child.wait().unwrap();
    client.granted(&client.mutex("n")).await;
    let sessions = std::fs::read_dir(folder.0.join("locks.db.sessions")).unwrap();
    assert_eq!(
        sessions.count(),
        1,
        "only the file of the running client is left"
    );
    client.granted(&client.mutex("second")).await;
}
