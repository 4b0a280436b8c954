//! On a terminal: the waiting line, keys, job control. The terminal is a pty.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{Proc, Sandbox, state};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Our side of a terminal, and what has been printed on it.
struct Tty {
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    path: String,
}

impl Tty {
    fn new() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let keys = File::from(ours);
        let (mut reader, seen) = (keys.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let screen = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                screen.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { keys, seen, path }
    }

    fn end(&self) -> Stdio {
        let mut options = std::fs::OpenOptions::new();
        let options = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc_noctty());
        Stdio::from(options.read(true).write(true).open(&self.path).unwrap())
    }

    /// Starts a command in a session of its own on this terminal.
    fn start(&self, sandbox: &Sandbox, args: &[&str]) -> Proc {
        // What the tests' own parent ignores is not ignored here: keys must have an effect.
        let mut command = Command::new("env");
        sandbox.prepare(&mut command);
        command.args(["--default-signal", "setsid", "--ctty", "--wait"]);
        command.args(args);
        command
            .stdin(self.end())
            .stdout(self.end())
            .stderr(self.end());
        Proc(Some(command.spawn().unwrap()))
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }
}

fn libc_noctty() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap()
}

#[test]
fn a_live_line_says_what_is_waited_for_and_goes_away() {
    let s = Sandbox::new();
    let holder = s.start_job(&["--label", "nightly", "x"], "ready; exec sleep 1000");
    let tty = Tty::new();
    let mut waiter = s.clinch(&["run", "x", "--", "true"]);
    waiter.stderr(tty.end());
    let waiter = Proc(Some(waiter.spawn().unwrap()));
    let says =
        || tty.seen().contains("waiting for x: held by") && tty.seen().contains("(nightly) for");
    s.until("the line is there", says);
    // Again, in the same place.
    s.until("the line is renewed", || {
        tty.seen().matches("\r\x1b[Kwaiting for x").count() >= 2
    });
    holder.signal(Signal::TERM);
    assert_eq!(waiter.wait().code, 0);
    s.until("the line is gone", || tty.seen().ends_with("\r\x1b[K"));
}

#[test]
fn the_job_can_read_and_keys_reach_it() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let script = "read line; echo got:$line; echo $$ > child; exec sleep 1000";
    let run = tty.start(&s, &["clinch", "run", "x", "--", "sh", "-c", script]);
    tty.press("hello\n");
    s.until("the job has read it", || tty.seen().contains("got:hello"));
    s.pid("child");
    tty.press("\x03");
    assert_eq!(run.wait().code, 130);
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn a_job_in_a_pipeline_gets_the_terminal_when_it_reads() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let script = "clinch run x -- sh -c 'read line; echo got:$line' | cat";
    let shell = tty.start(&s, &["sh", "-c", script]);
    tty.press("hello\n");
    s.until("the job has read it", || tty.seen().contains("got:hello"));
    assert_eq!(shell.wait().code, 0);
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_them() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let shell = tty.start(&s, &["sh", "-i"]);
    tty.press("clinch run x -- sh -c 'echo $$ > child; exec sleep 1000'\n");
    let child = s.pid("child");
    let clinch = i32::try_from(s.list()[0]["holders"][0]["pid"].as_i64().unwrap()).unwrap();
    tty.press("\x1a");
    s.until("both are stopped", || {
        state(clinch) == Some('T') && state(child) == Some('T')
    });
    tty.press("fg\n");
    s.until("both run", || {
        [clinch, child]
            .iter()
            .all(|pid| state(*pid).is_some_and(|s| s != 'T'))
    });
    s.until("the job has the terminal again", || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        // The process group and the terminal's foreground group.
        fields.get(2).is_some() && fields.get(2) == fields.get(5)
    });
    tty.press("\x03");
    s.until("it has ended", || state(clinch).is_none());
    tty.press("echo status=$?; exit\n");
    s.until("the shell is back", || tty.seen().contains("status=130"));
    shell.wait();
    assert_eq!(s.list(), serde_json::json!([]));
}
