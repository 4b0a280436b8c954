//! Nothing that the job started outlives the lock, wherever it went: out of the group, out of the
//! session, to another parent.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::{Sandbox, child, is_alive, kill, parent, state};
use rustix::process::Signal;

/// Ignores what can be ignored, and writes.
const WRITER: &str = "trap '' TERM HUP INT QUIT
echo $$ > writer.tmp; mv writer.tmp writer
while :; do echo x >> log; sleep 0.02; done";

/// Ways out of the job's process group. Each starts the writer in the background.
const WAYS: [(&str, &str); 7] = [
    ("timeout", "sh -c 'timeout 1h sh writer.sh; :' &"),
    ("setsid", "setsid sh writer.sh &"),
    ("a daemon", "setsid --fork sh writer.sh"),
    ("a double fork", "(sh writer.sh & ) &"),
    ("job control", "bash -c 'set -m; sh writer.sh & wait' &"),
    (
        "a nested interactive shell",
        "script -qec 'bash -ic \"sh writer.sh & wait\"' /dev/null > /dev/null &",
    ),
    (
        "a terminal of its own",
        "script -qec 'sh writer.sh' /dev/null > /dev/null &",
    ),
];

fn sandbox() -> Sandbox {
    let s = Sandbox::new();
    std::fs::write(s.path("writer.sh"), WRITER).unwrap();
    s
}

/// The job: lets the writer out, and waits for it or does not.
fn script(way: &str, then: &str) -> String {
    format!("{way}\nuntil test -s writer; do sleep 0.01; done; ready; {then}")
}

/// All ways at the same time: most of each test is waiting.
fn by_every_way(test: impl Fn(&str, &str) + Sync) {
    std::thread::scope(|scope| {
        for (what, way) in WAYS {
            let test = &test;
            scope.spawn(move || test(what, way));
        }
    });
}

const STAY: &str = "while :; do sleep 0.02; done";

#[test]
fn nothing_outlives_a_clinch_that_was_killed() {
    by_every_way(|what, way| {
        let s = sandbox();
        let mut job = s.start_job(&["x"], &script(way, STAY));
        let writer = s.pid("writer");
        job.signal(Signal::KILL);
        job.child().wait().unwrap();
        s.until(&format!("{what}: the writer is gone"), || !is_alive(writer));
        assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 0);
    });
}

#[test]
fn nothing_outlives_an_eviction() {
    by_every_way(|what, way| {
        let s = sandbox();
        let job = s.start_job(
            &["--lease", "6s", "--grace", "200ms", "x"],
            &script(way, STAY),
        );
        let writer = s.pid("writer");
        assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
        let ran = job.wait();
        assert_eq!(ran.code, 76, "{what}: {ran:?}");
        assert!(!is_alive(writer), "{what}");
    });
}

#[test]
fn nothing_outlives_the_longest_hold() {
    by_every_way(|what, way| {
        let s = sandbox();
        // The writer may come to run or not: both are right, as long as it does not go on.
        let options = ["--max-hold", "6s", "--grace", "200ms", "x"];
        let args = [&["run"][..], &options, &["--", "sh", "-c"]].concat();
        let job = script(way, STAY);
        let ran = s.run(&[&args[..], &[&format!("ready() {{ :; }}\n{job}")]].concat());
        assert_eq!(ran.code, 76, "{what}: {ran:?}");
        let writer = s.read("writer");
        assert!(
            writer.is_empty() || !is_alive(writer.trim().parse().unwrap()),
            "{what}"
        );
    });
}

#[test]
fn nothing_outlives_a_clinch_that_was_stopped() {
    by_every_way(|what, way| {
        let s = sandbox();
        let job = s.start_job(&["--lease", "3s", "x"], &script(way, STAY));
        let writer = s.pid("writer");
        job.signal(Signal::STOP);
        s.until(&format!("{what}: the writer is gone"), || !is_alive(writer));
        job.signal(Signal::CONT);
        assert_eq!(job.wait().code, 76, "{what}");
    });
}

#[test]
fn nothing_outlives_a_job_that_ended() {
    by_every_way(|what, way| {
        let s = sandbox();
        let job = s.start_job(&["--grace", "200ms", "x"], &script(way, "exit 3"));
        let ran = job.wait();
        assert_eq!(ran.code, 3, "{what}: {ran:?}");
        assert!(!is_alive(s.pid("writer")), "{what}");
        assert!(
            ran.err.contains("left in the background"),
            "{what}: {ran:?}"
        );
        assert_eq!(s.list(), serde_json::json!([]));
    });
}

#[test]
fn nothing_outlives_the_guardian() {
    by_every_way(|what, way| {
        let s = sandbox();
        let job = s.start_job(&["x"], &script(way, STAY));
        let writer = s.pid("writer");
        // The job's parent.
        kill(parent(s.pid("ready")), Signal::KILL);
        let ran = job.wait();
        assert_eq!(ran.code, 137, "{what}: {ran:?}");
        assert!(!is_alive(writer), "{what}");
        assert_eq!(s.list(), serde_json::json!([]));
    });
}

#[test]
fn a_guardian_that_hangs_is_replaced() {
    let s = sandbox();
    let way = WAYS[1].1;
    let job = s.start_job(
        &["--lease", "6s", "--grace", "200ms", "x"],
        &script(way, STAY),
    );
    let writer = s.pid("writer");
    let guardian = parent(s.pid("ready"));
    kill(guardian, Signal::STOP);
    s.until("the guardian is stopped", || state(guardian) == Some('T'));
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    assert_eq!(job.wait().code, 76);
    assert!(!is_alive(writer));
}

#[test]
fn what_ends_by_itself_is_waited_for() {
    let s = Sandbox::new();
    // As with `exec > >(tee log)` in a script: the reader ends a moment after the script.
    let script = "(while kill -0 $$ 2> /dev/null; do :; done; echo whole > log) & exit 0";
    let ran = s.run(&["run", "x", "--", "sh", "-c", script]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(s.read("log"), "whole\n");
}

#[test]
fn what_is_left_on_purpose_survives() {
    let s = Sandbox::new();
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > background";
    let ran = s.run(&["run", "--leave-background", "x", "--", "sh", "-c", script]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let background = s.pid("background");
    assert!(is_alive(background));
    assert_eq!(s.list(), serde_json::json!([]));
    kill(background, Signal::KILL);
}

#[test]
fn orphans_are_reaped_while_the_job_runs() {
    let s = Sandbox::new();
    // A daemon that ends while the job goes on: nobody of the job is its parent any more.
    let script = "(sh -c 'echo $$ > orphan.tmp; mv orphan.tmp orphan; until test -e go; do sleep 0.01; done' & ) &
wait; ready; while :; do sleep 0.02; done";
    let job = s.start_job(&["x"], script);
    let orphan = s.pid("orphan");
    std::fs::write(s.path("go"), "").unwrap();
    let remains = format!("/proc/{orphan}");
    s.until("no zombie is left", || {
        !std::path::Path::new(&remains).exists()
    });
    job.signal(Signal::TERM);
    assert_eq!(job.wait().code, 143);
}

#[test]
fn the_first_process_of_a_container_reaps_orphans() {
    for job in [&["run", "x", "--", "sleep", "1000"][..], &["hold", "x"]] {
        let s = Sandbox::new();
        let mut container = std::process::Command::new("unshare");
        s.prepare(&mut container);
        container.args(["--pid", "--fork", "--mount-proc", "--kill-child", "clinch"]);
        container.args(job).stdout(std::process::Stdio::null());
        let container = common::Proc(Some(container.spawn().unwrap()));
        s.until("the lock is held", || s.list()[0]["holders"][0]["pid"] == 1);
        let first = child(container.pid());
        let inside = |script: &str| {
            let mut command = std::process::Command::new("nsenter");
            s.prepare(&mut command);
            command.args(["-t", &first.to_string(), "-p", "-m", "--wd=."]);
            command
                .args(["sh", "-c", script])
                .status()
                .unwrap()
                .success()
        };
        // Neither clinch nor its job is the parent of this one.
        let orphan =
            "(sh -c 'echo $$ > tmp; mv tmp orphan; until test -e go; do sleep 0.01; done' &)";
        assert!(inside(orphan));
        let orphan = s.pid("orphan");
        assert!(inside(&format!("test -e /proc/{orphan}")));
        std::fs::write(s.path("go"), "").unwrap();
        s.until("no zombie is left", || {
            inside(&format!("test ! -e /proc/{orphan}"))
        });
    }
}
