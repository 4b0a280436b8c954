//! The commands that print: shapes of `--json`, statuses, closed pipes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::Sandbox;
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn list_has_the_documented_fields() {
    let s = Sandbox::new();
    assert_eq!(s.run(&["list", "--json"]).out, "[]\n");
    let holder = s.start_job(&["--label", "one", "a/x"], "ready; exec sleep 1000");
    let waiter = s.start(&["run", "-q", "--label", "two", "a/x", "--", "true"]);
    s.until("one waits", || {
        s.list()[0]["waiters"]
            .as_array()
            .is_some_and(|w| w.len() == 1)
    });
    let list = s.list();
    let lock = &list[0];
    assert_eq!(
        keys(lock),
        [
            "delayed",
            "delayed_for_ms",
            "holders",
            "kind",
            "limit",
            "name",
            "waiters"
        ]
    );
    assert_eq!(
        (&lock["name"], &lock["limit"], &lock["kind"]),
        (&json!("a/x"), &json!(1), &json!("mutex"))
    );
    let party = [
        "client",
        "host",
        "label",
        "lease_left_ms",
        "mode",
        "owner",
        "pid",
        "since_ms",
        "units",
    ];
    let mut with_token = [&party[..], &["sequencer", "token"]].concat();
    with_token.sort_unstable();
    assert_eq!(keys(&lock["holders"][0]), with_token);
    assert_eq!(keys(&lock["waiters"][0]), party);
    assert_eq!(lock["holders"][0]["pid"], holder.pid());
    assert_eq!(lock["waiters"][0]["pid"], waiter.pid());
    assert_eq!(
        (&lock["holders"][0]["label"], &lock["waiters"][0]["label"]),
        (&json!("one"), &json!("two"))
    );
    assert!(
        lock["holders"][0]["lease_left_ms"]
            .as_u64()
            .is_some_and(|ms| ms <= 30_000)
    );
    // The prefix, the namespace, and the table for people.
    assert_eq!(s.run(&["list", "--json", "b/"]).out, "[]\n");
    assert_eq!(
        s.run(&["list", "--json", "--namespace", "other"]).out,
        "[]\n"
    );
    let table = s.run(&["list"]).out;
    assert!(table.lines().next().unwrap().starts_with("NAME"), "{table}");
    assert!(
        table.contains("held") && table.contains("waiting") && table.contains("two"),
        "{table}"
    );
    assert!(!table.contains('\x1b'), "no colour into a pipe: {table}");
    assert!(s.run(&["--color", "always", "list"]).out.contains('\x1b'));
}

#[test]
fn show_tells_all_of_one_lock() {
    let s = Sandbox::new();
    let free = s.run(&["show", "x"]);
    assert_eq!((free.code, free.out.as_str()), (0, "x: free\n"));
    let free = s.run(&["show", "--json", "x"]).json();
    assert_eq!(
        (&free["name"], &free["limit"], &free["holders"]),
        (&json!("x"), &Value::Null, &json!([]))
    );
    let _holder = s.start_job(&["--label", "one\n\x1b[2J", "x"], "ready; exec sleep 1000");
    let shown = s.run(&["show", "--json", "x"]).json();
    assert_eq!(keys(&shown), keys(&s.list()[0]));
    assert_eq!(shown["holders"][0]["label"], "one\n\x1b[2J");
    let text = s.run(&["show", "x"]).out;
    assert!(
        text.contains("held") && text.contains("one\\n\\u{1b}[2J"),
        "{text}"
    );
}

#[test]
fn check_says_current_then_stale() {
    let s = Sandbox::new();
    let script = "clinch check $CLINCH_SEQUENCER; echo $?; clinch check --json $CLINCH_SEQUENCER; echo $CLINCH_SEQUENCER";
    let ran = s.run(&["run", "x", "--", "sh", "-c", script]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["current", "0"]);
    let check: Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!(
        (&check["name"], &check["current"]),
        (&json!("x"), &json!(true))
    );
    let stale = s.run(&["check", lines[3]]);
    assert_eq!((stale.code, stale.out.as_str()), (1, "stale\n"));
    assert_eq!(
        s.run(&["check", "--json", lines[3]]).json()["current"],
        false
    );
}

#[test]
fn evict_breaks_the_hold_that_is_meant() {
    let s = Sandbox::new();
    let none = s.run(&["evict", "x", "--yes"]);
    assert_eq!((none.code, none.err.as_str()), (1, "nobody holds x\n"));
    assert_eq!(
        s.run(&["evict", "x", "--yes", "--json"]).json(),
        json!({ "name": "x", "evicted": [], "delays": [] })
    );
    let job = s.start_job(&["--lease", "3s", "x"], "ready; exec sleep 1000");
    let refused = s.run(&["evict", "x"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("--yes"), "{refused:?}");
    assert_eq!(s.run(&["evict", "x", "--yes", "--token", "4096"]).code, 1);
    let token = s.list()[0]["holders"][0]["token"].clone();
    let evicted = s.run(&[
        "evict",
        "x",
        "--yes",
        "--json",
        "--token",
        &token.to_string(),
    ]);
    assert_eq!(
        evicted.json(),
        json!({ "name": "x", "evicted": [token], "delays": [] })
    );
    assert_eq!(job.wait().code, 76);
}

#[test]
fn stores_and_doctor_speak_json() {
    let s = Sandbox::new();
    let stores = s.run(&["stores", "--json"]).json();
    let sqlite = stores
        .as_array()
        .unwrap()
        .iter()
        .find(|store| store["scheme"] == "sqlite")
        .unwrap();
    assert_eq!(
        keys(sqlite),
        ["capabilities", "guarantees", "limits", "scheme", "summary"]
    );
    assert_eq!(
        keys(&sqlite["guarantees"]),
        ["clock", "exclusion", "liveness", "scope", "token_order"]
    );
    assert_eq!(sqlite["capabilities"]["fencing_tokens"], true);
    let ran = s.run(&["doctor", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for finding in ran.json().as_array().unwrap() {
        assert_eq!(keys(finding), ["advice", "message", "severity", "subject"]);
    }
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
    let s = Sandbox::new();
    for args in [
        &["stores"][..],
        &["list", "--json"],
        &["doctor"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = s.clinch(args).stdout(writer).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(0), ""), "{args:?}");
    }
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = s.clinch(&["stores"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
}
