//! The commands that go on: `watch` and `hold`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use std::process::Stdio;

use common::{Proc, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The first line that a running command prints.
fn first_line(proc: &mut Proc) -> String {
    use std::io::BufRead as _;
    let mut line = String::new();
    let out = proc.child().stdout.as_mut().unwrap();
    std::io::BufReader::new(out).read_line(&mut line).unwrap();
    line
}

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn watch_prints_each_event() {
    let s = Sandbox::new();
    s.list();
    let mut watch = s.start(&["watch", "p/", "--json", "--count", "4"]);
    // Nobody tells when watching has begun: give it something to see until it has seen enough.
    s.until("it has seen enough", || {
        s.run(&["run", "--label", "l", "p/x", "--", "true"]);
        s.run(&["run", "other", "--", "true"]);
        watch.has_ended()
    });
    let ran = watch.wait();
    assert_eq!(ran.code, 0, "{ran:?}");
    let events: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 4);
    for event in &events {
        assert_eq!(
            keys(event),
            [
                "at_ms", "event", "host", "label", "name", "owner", "pid", "token", "value"
            ]
        );
        assert_eq!(
            (&event["name"], &event["label"]),
            (&json!("p/x"), &json!("l"))
        );
        assert!(
            event["event"] == "granted" || event["event"] == "released",
            "{event}"
        );
    }
}

#[test]
fn watch_ends_when_told() {
    let s = Sandbox::new();
    let ran = s.run(&["watch", "--for", "50ms"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    s.list();
    let mut command = s.clinch(&["watch"]);
    command.stdout(std::fs::File::create(s.path("events")).unwrap());
    let watch = Proc(Some(command.spawn().unwrap()));
    s.until("it has seen something", || {
        s.run(&["run", "x", "--", "true"]);
        s.read("events").contains('\n')
    });
    let line = s.read("events").lines().next().unwrap().to_owned();
    assert!(line.contains("x  ") && line.starts_with('+'), "{line}");
    watch.signal(Signal::INT);
    assert_eq!(watch.wait().code, 0);
}

#[test]
fn hold_holds_until_told() {
    let s = Sandbox::new();
    let mut hold = s.start(&["hold", "x", "--json"]);
    let held: Value = serde_json::from_str(&first_line(&mut hold)).unwrap();
    assert_eq!(
        (&held["event"], &held["name"]),
        (&json!("held"), &json!("x"))
    );
    assert_eq!(
        s.run(&["check", held["sequencer"].as_str().unwrap()]).code,
        0
    );
    assert_eq!(s.list()[0]["holders"][0]["token"], held["token"]);
    hold.signal(Signal::TERM);
    let ran = hold.wait();
    assert_eq!(
        (ran.code, ran.json()["event"].clone()),
        (0, json!("released"))
    );
    assert_eq!(s.list(), json!([]));

    let ran = s.run(&["hold", "x", "--for", "10ms"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines[0].starts_with("held x token ") && lines[0].contains(" sequencer x:"),
        "{ran:?}"
    );
    assert_eq!((ran.code, lines[1]), (0, "released x"));
}

#[test]
fn hold_can_end_with_its_input() {
    let s = Sandbox::new();
    let mut command = s.clinch(&["hold", "x", "--stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hold = Proc(Some(command.spawn().unwrap()));
    assert!(first_line(&mut hold).starts_with("held x"));
    drop(hold.child().stdin.take());
    assert_eq!(hold.wait().code, 0);
}

#[test]
fn hold_says_that_it_was_lost() {
    let s = Sandbox::new();
    let mut hold = s.start(&["hold", "x", "--lease", "3s", "--json"]);
    first_line(&mut hold);
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    let ran = hold.wait();
    assert_eq!(ran.code, 76, "{ran:?}");
    assert_eq!(
        ran.json(),
        json!({ "event": "lost", "name": "x", "reason": "evicted" })
    );
    assert_eq!(ran.error_json()["error"]["kind"], "lost");
}
