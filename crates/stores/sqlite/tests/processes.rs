//! Several processes that want the same lock, and die.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clinch_core::Clock;
use clinch_core::store::{Admin, Claim, ClaimReply, Grant, Store, Wake};
use common::{Client, Folder};

/// How often each process adds one.
const ROUNDS: u64 = 100;

/// Waits for a claim as the engine does, and counts the times that no wake came.
async fn acquire(client: &Client, claim: &Claim, missed: &mut u32) -> Grant {
    let mut wakes = client.store.wakes(claim);
    loop {
        match client.store.claim(claim).await.unwrap() {
            ClaimReply::Granted(grant) => return grant,
            ClaimReply::Queued(_) => {}
            other => panic!("{other:?}"),
        }
        match tokio::time::timeout(Duration::from_secs(1), wakes.next()).await {
            Ok(Some(Wake::Granted(grant))) => return grant,
            Ok(_) => {}
            Err(_) => *missed += 1,
        }
    }
}

/// Adds one to a number in a file, `ROUNDS` times, under the lock; with the highest token so far.
#[tokio::test]
async fn helper_that_counts() {
    let Some(folder) = std::env::var_os("CLINCH_TEST_COUNT") else {
        return;
    };
    let folder = Path::new(&folder);
    let client = Client::open(&folder.join("locks.db"), Clock::boot()).unwrap();
    let (number, mut missed) = (folder.join("number"), 0);
    for _ in 0..ROUNDS {
        let claim = client.mutex("counter");
        let grant = acquire(&client, &claim, &mut missed).await;
        let text = fs::read_to_string(&number).unwrap();
        let (count, token) = text.split_once(' ').unwrap();
        let (count, token): (u64, u64) = (count.parse().unwrap(), token.parse().unwrap());
        assert!(grant.seq > token, "{} after {token}", grant.seq);
        fs::write(&number, format!("{} {}", count + 1, grant.seq)).unwrap();
        client.store.release(&claim.hold(grant.seq)).await.unwrap();
    }
    println!("\nmissed {missed}");
    client.store.close().await.unwrap();
}

fn counter(folder: &Folder) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_counts", "--nocapture"])
        .env("CLINCH_TEST_COUNT", &folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn processes_exclude_each_other_and_wake_each_other() {
    let folder = Folder::new();
    fs::write(folder.0.join("number"), "0 0").unwrap();
    let children: Vec<Child> = (0..4).map(|_| counter(&folder)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        let missed = text.lines().find_map(|line| line.strip_prefix("missed "));
        let missed: u64 = missed.unwrap().parse().unwrap();
        assert!(
            missed < ROUNDS / 10,
            "{missed} of {ROUNDS} wakes were missed"
        );
    }
    let text = fs::read_to_string(folder.0.join("number")).unwrap();
    assert!(text.starts_with(&format!("{} ", 4 * ROUNDS)), "{text}");
}

/// Lists, as `clinch list` does, and ends without closing the store.
#[tokio::test]
async fn helper_that_looks() {
    let Some(folder) = std::env::var_os("CLINCH_TEST_LOOK") else {
        return;
    };
    let client = Client::open(&Path::new(&folder).join("locks.db"), Clock::boot()).unwrap();
    client.store.list("").await.unwrap();
    drop(client);
    std::process::exit(0);
}

#[test]
fn a_short_process_leaves_no_session_file() {
    let folder = Folder::new();
    for _ in 0..5 {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_that_looks"])
            .env("CLINCH_TEST_LOOK", &folder.0)
            .status()
            .unwrap();
        assert!(status.success());
        let left = fs::read_dir(folder.0.join("locks.db.sessions")).unwrap();
        assert_eq!(left.count(), 0);
    }
}

#[tokio::test]
async fn killed_processes_leave_nothing_behind() {
    let folder = Folder::new();
    fs::write(folder.0.join("number"), "0 0").unwrap();
    for round in 0..8 {
        let mut children: Vec<Child> = (0..3).map(|_| counter(&folder)).collect();
        tokio::time::sleep(Duration::from_millis(40 + 15 * round)).await;
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            child.wait().unwrap();
        }
        // A kill in the middle of writing may have left half a number.
        fs::write(folder.0.join("number"), "0 0").unwrap();
        let client = folder.client();
        client.granted(&client.mutex("counter")).await;
        assert_eq!(client.store.list("").await.unwrap().len(), 1);
        client.store.close().await.unwrap();
        assert!(folder.client().store.list("").await.unwrap().is_empty());
    }
}
