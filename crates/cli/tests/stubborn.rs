//! Processes that are hard to end: chains of forks, processes that cannot be killed for now, and
//! those of another user, hidden or not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use std::time::Duration;

use common::freezer::Freezer;
use common::others::{Others, is_of_other};
use common::{Proc, Sandbox, child, is_alive, kill, parent, state};
use rustix::process::Signal;

/// Each process forks and ends, outside of the job's group. The chain ends by itself after a minute.
const CHAIN: &str = "use POSIX;
setsid(); my $end = time + 60;
for (my $n = 0; time < $end; $n++) {
    POSIX::_exit(0) if fork;
    if ($n % 20 == 0) { open F, '>>', 'chain'; syswrite F, '.'; close F }
}";

/// Starts a job with a chain, and waits until it runs.
fn start_chain(s: &Sandbox, options: &[&str], then: &str) -> Proc {
    std::fs::write(s.path("chain.pl"), CHAIN).unwrap();
    let script = format!(
        "perl chain.pl > /dev/null 2>&1 & until test -s chain; do sleep 0.01; done; ready; {then}"
    );
    s.start_job(options, &script)
}

fn length(s: &Sandbox) -> usize {
    s.read("chain").len()
}

/// The chain adds to its file all the time while it is there.
fn assert_broken(s: &Sandbox) {
    let before = length(s);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(length(s), before, "the chain goes on");
}

const STAY: &str = "while :; do sleep 0.02; done";

#[test]
fn a_chain_of_forks_does_not_outlive_an_eviction() {
    let s = Sandbox::new();
    let mut job = start_chain(&s, &["--lease", "6s", "--grace", "200ms", "x"], STAY);
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    s.until("clinch has ended", || job.has_ended());
    assert_eq!(job.wait().code, 76);
    assert_broken(&s);
}

#[test]
fn a_chain_of_forks_does_not_outlive_the_command() {
    let s = Sandbox::new();
    let mut job = start_chain(&s, &["--grace", "200ms", "x"], "exit 3");
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_broken(&s);
}

#[test]
fn a_chain_of_forks_does_not_outlive_the_guardian() {
    let s = Sandbox::new();
    let mut job = start_chain(&s, &["x"], STAY);
    kill(parent(s.pid("ready")), Signal::KILL);
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!(ran.code, 137, "{ran:?}");
    assert_broken(&s);
}

#[test]
fn a_chain_of_forks_is_ended_without_the_guardians_help() {
    let s = Sandbox::new();
    let mut job = start_chain(&s, &["--lease", "6s", "--grace", "200ms", "x"], STAY);
    let guardian = parent(s.pid("ready"));
    kill(guardian, Signal::STOP);
    s.until("the guardian is stopped", || state(guardian) == Some('T'));
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!(ran.code, 76, "{ran:?}");
    assert_broken(&s);
}

/// A child of the job that another test helper can freeze, named by the file `left`.
const LEFT: &str = "sleep 1000 > /dev/null 2>&1 & echo $! > left.tmp; mv left.tmp left;";

#[test]
fn what_cannot_be_killed_is_waited_for_without_haste() {
    let s = Sandbox::new();
    let Some(freezer) = Freezer::new() else {
        return;
    };
    let script = format!("{LEFT} until test -e go; do sleep 0.01; done; exit 3");
    let mut command = s.clinch(&["run", "--grace", "200ms", "x", "--", "sh", "-c", &script]);
    command.stderr(std::fs::File::create(s.path("said")).unwrap());
    let mut job = Proc(Some(command.spawn().unwrap()));
    freezer.freeze(s.pid("left"));
    std::fs::write(s.path("go"), "").unwrap();
    s.until("it is said", || {
        s.read("said")
            .contains("1 process of the command was killed")
    });
    // Neither clinch nor the guardian spins meanwhile.
    for pid in [job.pid(), child(job.pid())] {
        let before = ticks(pid);
        std::thread::sleep(Duration::from_millis(500));
        let used = ticks(pid) - before;
        assert!(used < 20, "{used} of 50 ticks");
    }
    assert!(!job.has_ended());
    assert_eq!(s.run(&["run", "--no-wait", "x", "--", "true"]).code, 75);
    freezer.thaw();
    s.until("clinch has ended", || job.has_ended());
    assert_eq!(job.wait().code, 3);
    assert_eq!(s.read("said").matches("was killed").count(), 1);
    assert_eq!(s.list(), serde_json::json!([]));
}

/// The processor time that a process has used, in hundredths of a second.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_lock_that_was_lost_does_not_wait_for_ever() {
    let s = Sandbox::new();
    let Some(freezer) = Freezer::new() else {
        return;
    };
    let mut job = s.start_job(
        &["--lease", "6s", "--grace", "200ms", "x"],
        &format!("{LEFT} ready; wait"),
    );
    freezer.freeze(s.pid("left"));
    assert_eq!(s.run(&["evict", "x", "--yes"]).code, 0);
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!(ran.code, 76, "{ran:?}");
    assert!(
        ran.err.contains("1 process of the command was killed"),
        "{ran:?}"
    );
    // The guardian stays, and goes with it.
    let guardian = parent(s.pid("left"));
    freezer.thaw();
    s.until("nothing is left", || {
        !is_alive(s.pid("left")) && !is_alive(guardian)
    });
}

#[test]
fn the_next_job_is_not_ended_with_the_one_before() {
    let s = Sandbox::new();
    let Some(freezer) = Freezer::new() else {
        return;
    };
    let script = format!(
        "if test -e second; then sleep 0.5; echo $$ > lasted; exec sleep 1000; fi; {LEFT} wait"
    );
    let args = [
        "elect", "--lease", "6s", "--grace", "200ms", "e", "--", "sh", "-c", &script,
    ];
    let mut leader = s.start(&args);
    freezer.freeze(s.pid("left"));
    std::fs::write(s.path("second"), "").unwrap();
    assert_eq!(s.run(&["evict", "e", "--yes"]).code, 0);
    s.until("the second job lasts", || {
        s.path("lasted").exists() || leader.has_ended()
    });
    assert!(s.path("lasted").exists(), "{:?}", leader.wait());
    freezer.thaw();
    s.until("the first job is gone", || !is_alive(s.pid("left")));
    leader.signal(Signal::TERM);
    let ran = leader.wait();
    assert_eq!(ran.code, 143, "{ran:?}");
}

/// A job that has a child of another user, as with `sudo`.
const SUDO: &str =
    "./as-other sleep 1000 > /dev/null 2>&1 & echo $! > other.tmp; mv other.tmp other;
until test -e go; do sleep 0.01; done;";

#[test]
fn hidden_processes_of_another_user_are_told_of() {
    let s = Sandbox::new();
    let Some(others) = Others::new(&s) else {
        return;
    };
    let mut job = others.start(&s, true, &["x"], &["sh", "-c", &format!("{SUDO} exit 3")]);
    let other = others.wait_for(&s);
    std::fs::write(s.path("go"), "").unwrap();
    s.until("clinch has ended", || job.has_ended());
    let ran = job.wait();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("1 process of the command cannot be ended"),
        "{ran:?}"
    );
    assert!(is_of_other(other));
}

#[test]
fn a_hidden_command_of_another_user_is_told_of_when_the_lock_is_lost() {
    let s = Sandbox::new();
    let Some(others) = Others::new(&s) else {
        return;
    };
    // The guardian helps, or it does not.
    for hangs in [false, true] {
        let _ = std::fs::remove_file(s.path("other"));
        let script =
            "echo $$ > other.tmp; mv other.tmp other; exec ./as-other sleep 1000 > /dev/null 2>&1";
        let options = ["--lease", "6s", "--grace", "200ms", "x"];
        let mut job = others.start(&s, true, &options, &["sh", "-c", script]);
        let other = others.wait_for(&s);
        if hangs {
            kill(parent(other), Signal::STOP);
        }
        Others::evict(&s);
        s.until("clinch has ended", || job.has_ended());
        let ran = job.wait();
        assert_eq!(ran.code, 76, "{ran:?}");
        assert!(
            ran.err.contains("1 process of the command cannot be ended"),
            "{hangs}: {ran:?}"
        );
        assert!(is_of_other(other));
        kill(other, Signal::KILL);
    }
}

#[test]
fn what_survives_the_guardian_is_told_of() {
    let s = Sandbox::new();
    let Some(others) = Others::new(&s) else {
        return;
    };
    for hide in [false, true] {
        let _ = std::fs::remove_file(s.path("other"));
        let script = format!("{SUDO} exit 3");
        let mut job = others.start(&s, hide, &["x"], &["sh", "-c", &script]);
        let other = others.wait_for(&s);
        kill(child(job.pid()), Signal::KILL);
        s.until("clinch has ended", || job.has_ended());
        let ran = job.wait();
        assert_eq!(ran.code, 137, "{ran:?}");
        assert!(
            ran.err.contains("1 process of the command cannot be ended"),
            "{hide}: {ran:?}"
        );
        assert!(!ran.err.contains("and the command with it"), "{ran:?}");
        assert!(is_of_other(other));
        kill(other, Signal::KILL);
    }
}
