//! `clinch elect`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::Sandbox;
use rustix::process::Signal;
use serde_json::json;

const LEAD: &str = "echo $CLINCH_TOKEN >> log; exec sleep 1000";

#[test]
fn a_leader_that_is_evicted_stops_and_campaigns_again() {
    let s = Sandbox::new();
    let leader = s.start(&[
        "elect", "--lease", "6s", "--value", "v1", "e", "--", "sh", "-c", LEAD,
    ]);
    s.until("it leads", || s.read("log").lines().count() == 1);
    assert_eq!(s.list()[0]["holders"][0]["value"], "v1");
    assert_eq!(s.run(&["evict", "e", "--yes"]).code, 0);
    s.until("it leads again", || s.read("log").lines().count() == 2);
    let log = s.read("log");
    let tokens: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    leader.signal(Signal::TERM);
    let ran = leader.wait();
    assert_eq!(ran.code, 143, "{ran:?}");
    assert!(ran.err.contains("campaigning again"), "{ran:?}");
    assert_eq!(s.list(), json!([]));
}

#[test]
fn once_means_once() {
    let s = Sandbox::new();
    let leader = s.start(&[
        "elect", "--once", "--lease", "6s", "e", "--", "sh", "-c", LEAD,
    ]);
    s.until("it leads", || s.read("log").lines().count() == 1);
    assert_eq!(s.run(&["evict", "e", "--yes"]).code, 0);
    assert_eq!(leader.wait().code, 76);
}

#[test]
fn a_command_that_ends_resigns() {
    let s = Sandbox::new();
    assert_eq!(s.run(&["elect", "e", "--", "sh", "-c", "exit 5"]).code, 5);
    assert_eq!(s.list(), json!([]));
}

#[test]
fn the_second_candidate_waits_and_takes_over() {
    let s = Sandbox::new();
    let first = s.start(&[
        "elect",
        "e",
        "--",
        "sh",
        "-c",
        "echo 1 >> log; exec sleep 1000",
    ]);
    s.until("the first leads", || s.read("log") == "1\n");
    let second = s.start(&[
        "elect",
        "-q",
        "e",
        "--",
        "sh",
        "-c",
        "echo 2 >> log; exec sleep 1000",
    ]);
    s.until("the second waits", || {
        s.list()[0]["waiters"]
            .as_array()
            .is_some_and(|w| w.len() == 1)
    });
    assert_eq!(
        s.run(&["elect", "--wait", "50ms", "e", "--", "true"]).code,
        75
    );
    first.signal(Signal::KILL);
    s.until("the second leads", || s.read("log") == "1\n2\n");
    second.signal(Signal::INT);
    assert_eq!(second.wait().code, 130);
}

#[test]
fn observers_see_who_leads() {
    let s = Sandbox::new();
    let _leader = s.start(&["elect", "--value", "v1", "e", "--", "sh", "-c", LEAD]);
    s.until("it leads", || s.read("log").lines().count() == 1);
    let seen = s
        .run(&["elect", "e", "--observe", "--json", "--count", "1"])
        .json();
    assert_eq!(
        (&seen["event"], &seen["value"], &seen["name"]),
        (&json!("led"), &json!("v1"), &json!("e"))
    );
    assert_eq!(seen["token"].to_string(), s.read("log").trim());
    let line = s.run(&["elect", "e", "--observe", "--count", "1"]).out;
    assert!(
        line.starts_with("e led by ") && line.contains(" value v1"),
        "{line}"
    );
}
