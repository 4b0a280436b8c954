//! `clinch run`: exit statuses, the child's environment, waiting.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::Sandbox;
use rustix::process::Signal;

#[test]
fn the_status_is_the_commands_own() {
    let s = Sandbox::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let ran = s.run(&["run", "x", "--", "sh", "-c", script]);
        assert_eq!((ran.code, ran.err.as_str()), (code, ""), "{script}");
    }
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing_held() {
    let s = Sandbox::new();
    let ran = s.run(&["run", "x", "--", "no-such-command-anywhere"]);
    assert_eq!(ran.code, 127);
    assert_eq!(
        ran.err,
        "clinch: no-such-command-anywhere: command not found\n"
    );
    std::fs::write(s.path("plain"), "text").unwrap();
    let ran = s.run(&["run", "x", "--", "./plain"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn the_command_is_told_of_its_lock() {
    let s = Sandbox::new();
    let script = "echo $CLINCH_NAME; echo $CLINCH_TOKEN; echo $CLINCH_SEQUENCER; \
                  echo $CLINCH_STORE; echo $CLINCH_NAMESPACE; clinch list --json";
    let ran = s.run(&[
        "run",
        "--namespace",
        "app",
        "jobs/1",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let lines: Vec<&str> = ran.out.lines().collect();
    let [name, token, sequencer, store, namespace, list] = lines[..] else {
        panic!("{ran:?}");
    };
    assert_eq!((name, namespace), ("jobs/1", "app"));
    assert_eq!(sequencer, format!("x:{token}:jobs/1"));
    assert_eq!(store, s.url());
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    assert_eq!(list[0]["holders"][0]["token"].to_string(), token);
}

#[test]
fn tokens_rise() {
    let s = Sandbox::new();
    let token = || -> u64 {
        let ran = s.run(&["run", "x", "--", "sh", "-c", "echo $CLINCH_TOKEN"]);
        ran.out.trim().parse().unwrap()
    };
    let (first, second) = (token(), token());
    assert!(first < second, "{first} {second}");
}

#[test]
fn a_taken_lock_is_not_acquired_in_time() {
    let s = Sandbox::new();
    let holder = s.start_job(&["--label", "nightly", "x"], "ready; exec sleep 1000");
    for wait in [&["--no-wait"][..], &["--wait", "200ms"], &["--wait", "0"]] {
        let ran = s.run(&[&["run"], wait, &["x", "--", "true"]].concat());
        assert_eq!(ran.code, 75, "{ran:?}");
        assert!(
            ran.err.contains("not acquired") && ran.err.contains("(nightly)"),
            "{ran:?}"
        );
        // On a starved machine the wait may be long enough to be told of.
        let said = ran
            .err
            .lines()
            .filter(|line| !line.contains(": waiting for "));
        assert_eq!(said.count(), 1, "{ran:?}");
    }
    let error = s
        .run(&["--json", "run", "--no-wait", "x", "--", "true"])
        .error_json();
    assert_eq!(error["error"]["kind"], "not-acquired");
    assert_eq!(error["error"]["name"], "x");
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code, 143);
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn the_next_one_gets_it() {
    let s = Sandbox::new();
    let holder = s.start_job(
        &["x"],
        "ready; until test -e go; do sleep 0.01; done; echo 1 >> log",
    );
    let waiter = s.start(&["run", "x", "--", "sh", "-c", "echo 2 >> log"]);
    s.until("one waits", || {
        s.list()[0]["waiters"]
            .as_array()
            .is_some_and(|w| w.len() == 1)
    });
    std::fs::write(s.path("go"), "").unwrap();
    assert_eq!(holder.wait().code, 0);
    assert_eq!(waiter.wait().code, 0);
    assert_eq!(s.read("log"), "1\n2\n");
}

#[test]
fn a_waiting_command_says_once_what_it_waits_for() {
    let s = Sandbox::new();
    let _holder = s.start_job(&["--label", "nightly", "x"], "ready; exec sleep 1000");
    let mut command = s.clinch(&["run", "x", "--", "true"]);
    command.stderr(std::fs::File::create(s.path("said")).unwrap());
    let waiter = common::Proc(Some(command.spawn().unwrap()));
    s.until("it is said", || s.read("said").ends_with('\n'));
    waiter.signal(Signal::INT);
    assert_eq!(waiter.wait().code, 130);
    let said = s.read("said");
    assert!(
        said.starts_with("clinch: waiting for x: held by "),
        "{said}"
    );
    assert!(
        said.contains("(nightly)") && said.lines().count() == 1,
        "{said}"
    );
    let ran = s.run(&["run", "--quiet", "--wait", "1500ms", "x", "--", "true"]);
    assert!(!ran.err.contains("waiting"), "{ran:?}");
}

#[test]
fn an_interrupted_wait_leaves_nothing() {
    let s = Sandbox::new();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let holder = s.start_job(&["x"], "ready; exec sleep 1000");
        let waiter = s.start(&["run", "-q", "x", "--", "true"]);
        let waiters = || s.list()[0]["waiters"].as_array().map(Vec::len);
        s.until("one waits", || waiters() == Some(1));
        waiter.signal(signal);
        let ran = waiter.wait();
        assert_eq!((ran.code, ran.err.as_str()), (code, ""));
        assert_eq!(waiters(), Some(0));
        holder.signal(Signal::TERM);
        holder.wait();
        assert_eq!(s.list(), serde_json::json!([]));
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let s = Sandbox::new();
    let reader = s.start_job(&["--shared", "x"], "ready; exec sleep 1000");
    assert_eq!(
        s.run(&["run", "--no-wait", "--shared", "x", "--", "true"])
            .code,
        0
    );
    // A plain run is the write side where the name is shared.
    for kind in [&["x"][..], &["--exclusive", "x"]] {
        let ran = s.run(&[&["run", "--no-wait"], kind, &["--", "true"]].concat());
        assert_eq!(ran.code, 75, "{ran:?}");
    }
    let lock = &s.list()[0];
    assert_eq!(
        (&lock["kind"], &lock["limit"]),
        (&"read-write".into(), &u32::MAX.into())
    );
    assert_eq!(lock["holders"][0]["mode"], "read");
    reader.signal(Signal::TERM);
    reader.wait();
    // And a reader waits for a mutex.
    let holder = s.start_job(&["x"], "ready; exec sleep 1000");
    assert_eq!(
        s.run(&["run", "--no-wait", "--shared", "x", "--", "true"])
            .code,
        75
    );
    holder.signal(Signal::TERM);
    holder.wait();
    assert_eq!(
        s.run(&["run", "--no-wait", "--shared", "x", "--", "true"])
            .code,
        0
    );
}

#[test]
fn permits_are_counted() {
    let s = Sandbox::new();
    let one = s.start_job(&["--permits", "2/3", "x"], "ready; exec sleep 1000");
    assert_eq!(
        s.run(&["run", "--no-wait", "--permits", "1/3", "x", "--", "true"])
            .code,
        0
    );
    assert_eq!(
        s.run(&["run", "--no-wait", "--permits", "2/3", "x", "--", "true"])
            .code,
        75
    );
    // Another limit, or a mutex, for a name in use is an error and changes nothing.
    let ran = s.run(&["run", "--no-wait", "--permits", "1/4", "x", "--", "true"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 2);
    let holder = &s.list()[0]["holders"][0];
    assert_eq!(
        (&holder["units"], &holder["mode"]),
        (&2.into(), &"permits".into())
    );
    drop(one);
}

#[test]
fn a_store_that_cannot_be_used_is_69() {
    let s = Sandbox::new();
    std::fs::write(
        s.path("locks.db"),
        "this is not a database, and must not become one",
    )
    .unwrap();
    let ran = s.run(&["run", "x", "--", "touch", "ran"]);
    assert_eq!(ran.code, 69, "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(!s.path("ran").exists());
    assert!(s.read("locks.db").starts_with("this is not"));
}

#[test]
fn the_longest_hold_is_kept() {
    let s = Sandbox::new();
    let ran = s.run(&["run", "--max-hold", "300ms", "x", "--", "sleep", "1000"]);
    assert_eq!(ran.code, 76, "{ran:?}");
    assert!(ran.err.contains("longest time"), "{ran:?}");
    assert_eq!(s.list(), serde_json::json!([]));
}
