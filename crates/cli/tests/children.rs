//! What becomes of the child and its children: signals, a lost lock, the death of clinch.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::{Proc, Sandbox, child, is_alive, kill, state};
use rustix::fs::inotify;
use rustix::process::Signal;

/// Notes signals in a file until it is told to end by TERM.
const NOTES: &str = "trap 'exit 7' TERM
for s in INT HUP QUIT USR1 USR2; do trap \"echo $s >> log\" $s; done
ready; while :; do sleep 0.02; done";

#[test]
fn signals_are_passed_on() {
    let s = Sandbox::new();
    let job = s.start_job(&["x"], NOTES);
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        job.signal(signal);
        s.until(name, || s.read("log").lines().last() == Some(name));
    }
    job.signal(Signal::TERM);
    assert_eq!(job.wait().code, 7);
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn what_nohup_ignores_stays_ignored() {
    let s = Sandbox::new();
    let mut shell = std::process::Command::new("sh");
    s.prepare(&mut shell);
    shell.args(["-c", "trap '' HUP; exec clinch run x -- sh -c \"$0\""]);
    shell.arg(format!("ready() {{ : > ready; }}; {NOTES}"));
    shell.stderr(std::process::Stdio::null());
    let job = Proc(Some(shell.spawn().unwrap()));
    s.until("the job is ready", || s.path("ready").exists());
    job.signal(Signal::HUP);
    job.signal(Signal::USR1);
    s.until("USR1 came", || s.read("log").contains("USR1"));
    assert!(!s.read("log").contains("HUP"));
    job.signal(Signal::TERM);
    assert_eq!(job.wait().code, 7);
}

#[test]
fn a_stopped_job_goes_on() {
    let s = Sandbox::new();
    // Not a shell: one that waits in vfork for a stopped child is not itself stopped.
    let job = s.start_job(&["x"], "ready; exec sleep 1000");
    let child = s.pid("ready");
    job.signal(Signal::TSTP);
    s.until("both are stopped", || {
        state(child) == Some('T') && state(job.pid()) == Some('T')
    });
    job.signal(Signal::CONT);
    s.until("the child runs", || {
        state(child).is_some_and(|state| state != 'T')
    });
    job.signal(Signal::TERM);
    assert_eq!(job.wait().code, 143);
}

#[test]
fn everything_dies_with_clinch_and_the_lock_is_free_at_once() {
    let s = Sandbox::new();
    let script = "sh -c 'trap \"\" TERM HUP; echo $$ > grandchild; sleep 1000' & \
                  echo $$ > child; until test -s grandchild; do sleep 0.01; done; ready; wait";
    let mut job = s.start_job(&["x"], script);
    let (child, grandchild) = (s.pid("child"), s.pid("grandchild"));
    assert!(is_alive(child) && is_alive(grandchild));
    job.signal(Signal::KILL);
    job.child().wait().unwrap();
    assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 0);
    s.until("all are dead", || !is_alive(child) && !is_alive(grandchild));
}

#[test]
fn a_lost_lock_stops_the_job_with_term() {
    let s = Sandbox::new();
    let script = "trap 'echo bye > log; exit 0' TERM; ready; while :; do sleep 0.02; done";
    let job = s.start_job(&["--lease", "6s", "x"], script);
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    let ran = job.wait();
    assert_eq!(ran.code, 76, "{ran:?}");
    assert!(ran.err.contains("an operator evicted it"), "{ran:?}");
    assert_eq!(s.read("log"), "bye\n");
}

#[test]
fn a_job_that_ignores_term_is_killed_with_its_children() {
    let s = Sandbox::new();
    let script = "trap 'echo term >> log' TERM
sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 0.02; done' &
until test -s grandchild; do sleep 0.01; done; ready; while :; do sleep 0.02; done";
    let job = s.start_job(&["--lease", "6s", "--grace", "2s", "x"], script);
    let (child, grandchild) = (s.pid("ready"), s.pid("grandchild"));
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    assert_eq!(job.wait().code, 76);
    assert!(!is_alive(child) && !is_alive(grandchild));
    assert_eq!(s.read("log"), "term\n");
}

#[test]
fn a_grandchild_gets_its_grace_too() {
    let s = Sandbox::new();
    let script = "sh -c 'trap \"echo late >> log; exit\" TERM; echo $$ > grandchild; while :; do sleep 0.02; done' &
until test -s grandchild; do sleep 0.01; done; trap 'exit 0' TERM; ready; while :; do sleep 0.02; done";
    let job = s.start_job(&["--lease", "6s", "x"], script);
    let grandchild = s.pid("grandchild");
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    assert_eq!(job.wait().code, 76);
    assert!(!is_alive(grandchild));
    assert_eq!(s.read("log"), "late\n");
}

#[test]
fn a_paused_clinch_does_not_keep_its_job_past_the_lease() {
    let s = Sandbox::new();
    let job = s.start_job(&["--lease", "3s", "x"], "ready; exec sleep 1000");
    let child = s.pid("ready");
    job.signal(Signal::STOP);
    s.until("the guardian has ended the job", || !is_alive(child));
    job.signal(Signal::CONT);
    assert_eq!(job.wait().code, 76);
}

#[test]
fn no_process_is_left() {
    let s = Sandbox::new();
    // A pipe that the guardian or anybody else still held would keep this from ending.
    let ran = s.run(&["run", "x", "--", "echo", "hi"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hi\n"));
    // Nor does the command find anything open that was not open before.
    let mut bare = std::process::Command::new("ls");
    s.prepare(&mut bare);
    let bare = bare.arg("/proc/self/fd").output().unwrap();
    let ran = s.run(&["run", "x", "--", "ls", "/proc/self/fd"]);
    assert_eq!(ran.out, String::from_utf8_lossy(&bare.stdout));
}

#[test]
fn a_stopped_job_acts_on_signals() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let s = Sandbox::new();
        let job = s.start_job(&["x"], "ready; exec sleep 1000");
        let child = s.pid("ready");
        kill(child, Signal::STOP);
        s.until("it is stopped", || state(child) == Some('T'));
        job.signal(signal);
        assert_eq!(job.wait().code, code);
    }
}

#[test]
fn a_parent_that_ignores_its_children_changes_nothing() {
    // As programs in Perl and Python are often written. The kernel would reap the job by itself.
    let start = |s: &Sandbox, args: &[&str]| {
        let mut command = std::process::Command::new("env");
        s.prepare(&mut command);
        command.args(["--ignore-signal=CHLD", "clinch"]).args(args);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        Proc(Some(command.spawn().unwrap()))
    };
    let s = Sandbox::new();
    let mut job = start(&s, &["run", "x", "--", "sh", "-c", "exit 3"]);
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!((ran.code, ran.err.as_str()), (3, ""));
    // Nor does the job find it ignored.
    let mut job = start(
        &s,
        &["run", "x", "--", "grep", "SigIgn", "/proc/self/status"],
    );
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    let ignored = ran.out.trim().rsplit('\t').next().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & (1 << (Signal::CHILD.as_raw() - 1)), 0, "{ran:?}");
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn a_command_is_not_started_after_its_lease() {
    let s = Sandbox::new();
    let holder = s.start_job(&["x"], "ready; exec sleep 1000");
    // An attempt to start the command would open this file.
    let command = s.path("command");
    std::fs::copy("/bin/true", &command).unwrap();
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&opened, &command, inotify::WatchFlags::OPEN).unwrap();
    let command = command.to_str().unwrap();
    let late = s.start(&["run", "-q", "--lease", "3s", "x", "--", command]);
    let first = |of: &str| s.list()[0][of][0]["pid"] == late.pid();
    s.until("it waits", || first("waiters"));
    // The order comes to a guardian that hangs, and clinch hangs then, too.
    let guardian = child(late.pid());
    kill(guardian, Signal::STOP);
    s.until("the guardian is stopped", || state(guardian) == Some('T'));
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code, 143);
    s.until("it holds", || first("holders"));
    late.signal(Signal::STOP);
    s.until("its lease has ended", || s.list() == serde_json::json!([]));
    kill(guardian, Signal::CONT);
    late.signal(Signal::CONT);
    let ran = late.wait();
    assert_eq!(ran.code, 76, "{ran:?}");
    let mut events = [0; 256];
    let read = rustix::io::read(&opened, &mut events);
    assert_eq!(read, Err(rustix::io::Errno::AGAIN), "it was started");
}

#[test]
fn a_guardian_that_was_slow_starts_the_command_all_the_same() {
    let s = Sandbox::new();
    let holder = s.start_job(&["x"], "ready; exec sleep 1000");
    let late = s.start(&["run", "-q", "--lease", "1s", "x", "--", "touch", "ran"]);
    s.until("it waits", || {
        s.list()[0]["waiters"][0]["pid"] == late.pid()
    });
    let guardian = child(late.pid());
    kill(guardian, Signal::STOP);
    holder.signal(Signal::TERM);
    holder.wait();
    s.until("it holds", || {
        s.list()[0]["holders"][0]["pid"] == late.pid()
    });
    // Longer than the lease, which is renewed meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    kill(guardian, Signal::CONT);
    let ran = late.wait();
    assert_eq!((ran.code, s.path("ran").exists()), (0, true), "{ran:?}");
}
