//! Everything that a test program has started, wherever it is in the tree of processes.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that a program and all that it starts have in their environment.
pub(crate) const MARK: &str = "CLINCH_TEST_PROGRAM";

/// For how long processes that are killed take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes with a mark, and those of a session.
fn marked(mark: &str, session: Option<i32>) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let wanted = format!("{MARK}={mark}");
    let belongs = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (state, its_session) = state(&stat).unwrap_or(("Z", 0));
        if state == "Z" || state == "X" {
            return false; // It has ended; its parent has not looked yet.
        }
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has_mark = environ
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes());
        has_mark || session == Some(its_session)
    };
    pids.filter(belongs).filter_map(Pid::from_raw).collect()
}

/// The state and the session in `/proc/PID/stat`; the name before them may contain anything.
fn state(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    Some((state, fields.nth(2)?.parse().ok()?))
}

/// What each of them is, for a reader.
pub(crate) fn describe(mark: &str) -> Vec<String> {
    let line = |pid: Pid| {
        let pid = pid.as_raw_nonzero();
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let words: String = words.trim_end().chars().take(120).collect();
        let waits = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        format!("{pid} [{}] {words}", waits.trim())
    };
    marked(mark, None).into_iter().map(line).collect()
}

/// Kills them all and waits until they are gone.
pub(crate) fn kill(mark: &str, session: Option<i32>) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let left = marked(mark, session);
        if left.is_empty() || Instant::now() > give_up {
            return;
        }
        for pid in left {
            // It may have ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(Duration::from_millis(10));
    }
}

/// Those that are still there a moment after their program has ended.
///
/// Servers end with the program, by a signal of the kernel, but not in the same instant.
pub(crate) fn leftovers(mark: &str) -> Vec<String> {
    let give_up = Instant::now() + PATIENCE;
    while !marked(mark, None).is_empty() && Instant::now() < give_up {
        sleep(Duration::from_millis(5));
    }
    describe(mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_a_program_started_is_found_and_killed() {
        let mark = format!("test-{}", std::process::id());
        // The shell ends at once; what it started lives in a session of its own.
        let started = Command::new("sh")
            .args(["-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
            .env(MARK, &mark)
            .status();
        assert!(started.unwrap().success());
        let found = loop {
            let found = describe(&mark);
            if found.iter().any(|line| line.ends_with("sleep 1000")) {
                break found;
            }
        };
        assert_eq!(found.len(), 1, "{found:?}");
        kill(&mark, None);
        assert!(describe(&mark).is_empty());
    }

    #[test]
    fn the_state_comes_after_the_name() {
        assert_eq!(state("7 (a) b) S 1 7 9 0"), Some(("S", 9)));
        assert_eq!(state(""), None);
    }
}
