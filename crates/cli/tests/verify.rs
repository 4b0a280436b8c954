//! `clinch verify` from outside: short runs that pass, a history that is checked again, an end by a
//! signal. How many operations a run has is never asserted: a busy machine has few.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]
#![cfg(feature = "verify")]

mod common;

use std::process::Stdio;

use common::Sandbox;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Runs `verify` with `--json` and gives the status and the report.
fn verify(s: &Sandbox, args: &[&str]) -> (i32, Value) {
    let all = [&["verify", "--json"][..], args].concat();
    let ran = s.run(&all);
    let report = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran.code, report)
}

#[test]
fn a_short_run_passes_is_kept_and_is_checked_again() {
    let s = Sandbox::new();
    let args = [
        "--seconds",
        "3",
        "--clients",
        "3",
        "--seed",
        "7",
        "--history",
        "run.jsonl",
    ];
    let (code, report) = verify(&s, &[&args[..], &["--report", "run.html"]].concat());
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(
        (&report["passed"], &report["version"], &report["seed"]),
        (&true.into(), &1.into(), &7.into())
    );
    assert!(report["grants"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["workloads"].as_array().unwrap().len(), 12);
    assert_eq!(
        s.list(),
        Value::Array(Vec::new()),
        "nothing is left in the store"
    );

    let page = s.read("run.html");
    assert!(page.contains("<svg") && page.contains("no violation"));
    assert!(
        !page.contains("href=") && !page.contains("src="),
        "the page needs nothing but itself"
    );

    let (code, again) = verify(&s, &["--replay", "run.jsonl"]);
    assert_eq!(code, 0, "{again:#}");
    assert_eq!(
        (&again["grants"], &again["faults"]),
        (&report["grants"], &report["faults"])
    );
}

#[test]
fn a_violation_in_a_kept_history_is_found() {
    let s = Sandbox::new();
    let args = [
        "--seconds",
        "2",
        "--clients",
        "2",
        "--workload",
        "hot",
        "--history",
        "run.jsonl",
    ];
    assert_eq!(verify(&s, &args).0, 0);
    // Every guard says that it is still valid a minute later.
    let mut lines: Vec<String> = s.read("run.jsonl").lines().map(str::to_owned).collect();
    let grants: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for grant in grants
        .iter()
        .filter(|event| event["e"] == "acquire" && event["outcome"] == "ok")
    {
        let at = grant["complete"].as_u64().unwrap() + 60_000_000_000;
        lines.push(format!(
            r#"{{"e":"look","op":{},"at":{at},"valid":true}}"#,
            grant["op"]
        ));
    }
    std::fs::write(s.path("bad.jsonl"), lines.join("\n") + "\n").unwrap();
    let (code, report) = verify(&s, &["--replay", "bad.jsonl"]);
    assert_eq!(code, 1, "{report:#}");
    let found = report["violations"].as_array().unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|found| found["property"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"exclusion") && names.contains(&"late-loss"),
        "{names:?}"
    );
    assert!(
        found[0]["operations"][0].as_str().unwrap().starts_with('p'),
        "{found:?}"
    );
}

/// Runs a lab for some seconds: it is disturbed, and passes.
fn disturbed(lab: &str) {
    let s = Sandbox::new();
    let args = ["--lab", lab, "--seconds", "6", "--clients", "3"];
    let (code, report) = verify(&s, &[&args[..], &["--seed", "3"]].concat());
    // Not settled yet (docs/verification.md, "Open"): holds that a busy machine, or a fault whose reach is not
    // described well enough, kept from being renewed. Everything else must hold, and on a file this too.
    let open = |found: &serde_json::Value| {
        let message = found["message"].as_str().unwrap_or_default();
        lab != "sqlite" && message.ends_with("no fault kept its process from renewing it")
    };
    let found = report["violations"].as_array().unwrap();
    let settled = found.iter().all(open) && report["problems"].as_array().unwrap().is_empty();
    assert!(code == 0 || (code == 1 && settled), "{report:#}");
    assert!(report["faults"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["grants"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn the_lab_of_sqlite_is_disturbed_and_passes() {
    disturbed("sqlite");
}

#[test]
fn the_lab_of_redis_is_disturbed_and_passes() {
    disturbed("redis");
}

#[test]
fn the_lab_of_mysql_is_disturbed_and_passes() {
    disturbed("mysql");
}

#[test]
fn the_lab_of_etcd_is_disturbed_and_passes() {
    disturbed("etcd");
}

#[test]
fn the_lab_of_zookeeper_is_disturbed_and_passes() {
    disturbed("zookeeper");
}

#[test]
fn the_lab_of_redis_with_sentinels_is_disturbed_and_passes() {
    disturbed("redis-sentinel");
}

#[test]
fn the_lab_of_a_redis_cluster_is_disturbed_and_passes() {
    disturbed("redis-cluster");
}

#[test]
fn the_lab_of_a_redis_quorum_is_disturbed_and_passes() {
    disturbed("redis-quorum");
}

#[test]
fn a_signal_ends_it_with_a_report() {
    let s = Sandbox::new();
    let mut command = s.clinch(&["verify", "--minutes", "10", "--clients", "2"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    s.until("locks are in use", || s.list() != Value::Array(Vec::new()));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted; so far no violation"), "{text}");
    assert_eq!(s.list(), Value::Array(Vec::new()));
}

#[test]
fn what_cannot_be_tested_is_refused() {
    let s = Sandbox::new();
    for (args, want) in [
        (&["verify", "--store", "memory:"][..], "one process"),
        (&["verify", "--workload", "hott"], "no workload is called"),
        (&["verify", "--lab", "oracle"], "no lab is called"),
        (&["verify", "--wrong", "x"], "no wrong lock is called"),
        (
            &["verify", "--replay", "nothing.jsonl"],
            "cannot read the history",
        ),
        (&["verify", "--seconds", "0"], "0.1 to 1440"),
    ] {
        let ran = s.run(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(want), "{ran:?}");
    }
}
