//! Processes that are stopped in the middle of a transaction, and disks that fail.

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
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clinch_core::store::{ClaimReply, RenewReply, Renewal, Store};
use clinch_core::{Clock, ErrorKind};
use common::{Client, Folder};
use rustix::process::{Pid, Signal, kill_process};

/// Stays in a transaction until its input ends, when the test below starts it so.
#[test]
fn helper_that_stops() {
    let Some(path) = std::env::var_os("CLINCH_TEST_STOP") else {
        return;
    };
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("BEGIN IMMEDIATE; DELETE FROM events;")
        .unwrap();
    println!("\nready");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    db.execute_batch("ROLLBACK").unwrap();
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap()).unwrap()
}

/// Waits until the process is in this state.
fn wait_for(child: &Child, state: char) {
    let path = format!("/proc/{}/stat", child.id());
    loop {
        let stat = fs::read_to_string(&path).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        match rest.chars().next().unwrap() {
            now if now == state => return,
            'Z' => panic!("it has ended"),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[tokio::test]
async fn a_process_that_stops_in_a_transaction_costs_no_client_a_lock() {
    let folder = Folder::new();
    let url = format!("sqlite:{}?busy=300ms", folder.db().display());
    // Leases run on a clock that the test drives: a slow machine ends none.
    let (clock, hand) = Clock::manual();
    let open = || Client::open_url(&url, clock.clone()).unwrap();
    let (holder, other) = (open(), open());
    let mut held = holder.mutex("held");
    held.lease = Duration::from_secs(3);
    let grant = holder.granted(&held).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_stops", "--nocapture"])
        .env("CLINCH_TEST_STOP", folder.db())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.by_ref().lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    kill_process(pid(&child), Signal::STOP).unwrap();
    wait_for(&child, 'T');

    // A free, unrelated name: nothing can be granted, and the error says because of whom.
    let error = other.store.claim(&other.mutex("free")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let named = format!("blocked by process {} (stopped)", child.id());
    assert!(error.to_string().contains(&named), "{error}");
    assert!(!error.may_have_taken_effect());

    // The hold outlives three leases: each renewal is in time.
    let renewal = Renewal::new(held.hold(grant.seq), held.lease);
    for _ in 0..9 {
        hand.advance(held.lease / 3);
        let replies = holder.store.renew(std::slice::from_ref(&renewal)).await;
        assert_eq!(replies.unwrap(), [RenewReply::Held]);
    }
    kill_process(pid(&child), Signal::CONT).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    // All clients see it, although its lease is over in the database.
    let mut tried = other.mutex("held");
    tried.queue = false;
    let reply = other.store.claim(&tried).await.unwrap();
    assert!(matches!(reply, ClaimReply::Busy(_)), "{reply:?}");
    assert_eq!(
        holder.store.renew(&[renewal]).await.unwrap(),
        [RenewReply::Held]
    );
    other.granted(&other.mutex("free")).await;
}

/// Writes until the disk fails, when the test below starts it so.
#[tokio::test]
async fn helper_that_fills() {
    let Some(path) = std::env::var_os("CLINCH_TEST_FILL") else {
        return;
    };
    let client = Client::open(path.as_ref(), Clock::boot()).unwrap();
    let mut failed = None;
    for n in 0..2000 {
        let mut big = client.mutex(&format!("n{n}"));
        big.value = Some("x".repeat(1000).into());
        if let Err(error) = client.store.claim(&big).await {
            failed = Some(error);
            break;
        }
    }
    println!("\nfailed {}", failed.unwrap());
    // From now on nothing is granted, though there would be room in pages that were written.
    for name in ["n0", "a", "b"] {
        let error = client.store.claim(&client.mutex(name)).await.unwrap_err();
        println!("\nthen {error}");
    }
}

#[test]
fn after_a_write_that_failed_a_client_grants_nothing_more() {
    let folder = Folder::new();
    drop(folder.client());
    // A file may not grow over 512 KiB, which SQLite sees as an error of the disk.
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 1024; exec {} --exact helper_that_fills --nocapture",
        program.display()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("CLINCH_TEST_FILL", folder.db())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let first = text.lines().find_map(|line| line.strip_prefix("failed "));
    assert!(first.unwrap().contains("I/O error"), "{text}");
    let then: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("then "))
        .collect();
    assert_eq!(then.len(), 3);
    assert!(
        then.iter()
            .all(|error| error.contains("grants nothing more")),
        "{text}"
    );
    // A new client finds the committed state, and continues.
    assert!(Path::new(&folder.db()).exists());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let client = folder.client();
    runtime.block_on(client.granted(&client.mutex("a")));
}
