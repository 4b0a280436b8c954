//! Eviction by token, and locks in their lock-delay.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::Sandbox;
use common::tty::Tty;
use rustix::process::Signal;
use serde_json::json;

#[test]
fn only_the_holder_that_was_shown_is_evicted() {
    let s = Sandbox::new();
    let first = s.start_job(&["--label", "first", "x"], "ready; exec sleep 1000");
    let mut tty = Tty::new();
    let evict = tty.start(&s, &["clinch", "evict", "x"]);
    s.until("it asks", || tty.seen().contains("[y/N]"));
    assert!(tty.seen().contains("(first)"), "{}", tty.seen());
    // The operator thinks about it, and meanwhile the lock changes hands.
    first.signal(Signal::TERM);
    first.wait();
    let mut second = s.start_job(&["--label", "second", "x"], "ready; exec sleep 1000");
    let token = s.list()[0]["holders"][0]["token"].clone();
    tty.press("y\n");
    assert_eq!(evict.wait().code, 1);
    assert!(tty.seen().contains("nothing was changed"), "{}", tty.seen());
    assert!(!second.has_ended());
    assert_eq!(s.list()[0]["holders"][0]["token"], token);
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, 143);
}

#[test]
fn the_holder_that_was_shown_is_evicted() {
    let s = Sandbox::new();
    let job = s.start_job(&["--lease", "6s", "x"], "ready; exec sleep 1000");
    let mut tty = Tty::new();
    let evict = tty.start(&s, &["clinch", "evict", "x"]);
    s.until("it asks", || tty.seen().contains("[y/N]"));
    tty.press("y\n");
    assert_eq!(evict.wait().code, 0);
    assert_eq!(job.wait().code, 76);
}

#[test]
fn every_holder_is_evicted_with_yes() {
    let s = Sandbox::new();
    let script = "ready; exec sleep 1000";
    let one = s.start_job(&["--shared", "--lease", "6s", "x"], script);
    let two = s.start_job(&["--shared", "--lease", "6s", "x"], script);
    let evicted = s.run(&["evict", "x", "--yes", "--json"]).json();
    assert_eq!(
        evicted["evicted"].as_array().map(Vec::len),
        Some(2),
        "{evicted}"
    );
    assert_eq!((one.wait().code, two.wait().code), (76, 76));
}

/// A lock whose holder has died, with this lock-delay.
fn delayed(s: &Sandbox, delay: &str) -> serde_json::Value {
    let options = ["--lock-delay", delay, "--label", "dead", "x"];
    let mut job = s.start_job(&options, "ready; exec sleep 1000");
    let token = s.list()[0]["holders"][0]["token"].clone();
    job.signal(Signal::KILL);
    job.child().wait().unwrap();
    s.until("the delay runs", || s.list()[0]["holders"] == json!([]));
    token
}

#[test]
fn a_lock_in_its_lock_delay_is_shown() {
    let s = Sandbox::new();
    let token = delayed(&s, "1m");
    for lock in [s.list()[0].clone(), s.run(&["show", "--json", "x"]).json()] {
        assert_eq!(lock["kind"], "mutex");
        assert!(
            lock["delayed_for_ms"].as_u64().is_some_and(|ms| ms > 5_000),
            "{lock}"
        );
        let party = &lock["delayed"][0];
        assert_eq!((&party["token"], &party["label"]), (&token, &json!("dead")));
        assert!(
            party["lease_left_ms"]
                .as_u64()
                .is_some_and(|ms| ms <= 60_000),
            "{lock}"
        );
    }
    let table = s.run(&["list"]).out;
    let row = table.lines().nth(1).unwrap();
    assert!(
        row.contains("lock-delay") && row.contains("dead"),
        "{table}"
    );
    assert!(row.contains(&token.to_string()), "{table}");
    let text = s.run(&["show", "x"]).out;
    assert!(
        text.contains("lock-delay") && text.contains("free in"),
        "{text}"
    );
}

#[test]
fn a_lock_delay_is_the_reason_for_a_refusal_and_for_waiting() {
    let s = Sandbox::new();
    delayed(&s, "1m");
    for wait in [&["--no-wait"][..], &["--wait", "100ms"]] {
        let ran = s.run(&[&["run"], wait, &["x", "--", "true"]].concat());
        assert_eq!(ran.code, 75, "{ran:?}");
        assert!(
            ran.err.contains("; free in ") && ran.err.contains(": lock-delay of "),
            "{ran:?}"
        );
        assert!(ran.err.contains("(dead)"), "{ran:?}");
    }
    let tty = Tty::new();
    let mut waiter = s.clinch(&["run", "x", "--", "true"]);
    waiter.stderr(tty.end());
    let waiter = common::Proc(Some(waiter.spawn().unwrap()));
    s.until("the line says so", || {
        tty.seen().contains("waiting for x: free in ") && tty.seen().contains(": lock-delay of ")
    });
    // The end of the delay lets the waiter in.
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    assert_eq!(waiter.wait().code, 0);
}

#[test]
fn a_lock_delay_can_be_ended() {
    let s = Sandbox::new();
    let token = delayed(&s, "1m");
    let mut tty = Tty::new();
    let evict = tty.start(&s, &["clinch", "evict", "x"]);
    s.until("it asks", || tty.seen().contains("[y/N]"));
    assert!(tty.seen().contains("lock-delay of"), "{}", tty.seen());
    tty.press("n\n");
    assert_eq!(evict.wait().code, 1);
    assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 75);
    let ended = s.run(&["evict", "x", "--yes", "--json"]).json();
    assert_eq!(
        ended,
        json!({ "name": "x", "evicted": [], "delays": [token] })
    );
    assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 0);

    // By the token, and of a holder that is evicted first.
    let token = delayed(&s, "1m").to_string();
    let ran = s.run(&["evict", "x", "--yes", "--token", &token]);
    assert_eq!(
        ran.out,
        format!("ended the lock-delay of x token {token}\n")
    );
    let options = ["--lock-delay", "1m", "--lease", "6s", "x"];
    let job = s.start_job(&options, "ready; exec sleep 1000");
    assert!(
        s.run(&["evict", "x", "--yes"])
            .out
            .starts_with("evicted x token ")
    );
    assert_eq!(job.wait().code, 76);
    assert!(
        s.run(&["evict", "x", "--yes"])
            .out
            .starts_with("ended the lock-delay of x")
    );
    assert_eq!(s.list(), json!([]));
}
