//! What the tests of the command share: a store of their own, processes that end with the test, and
//! waiting for conditions instead of for time.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails the test"
)]

pub(crate) mod freezer;
pub(crate) mod others;
pub(crate) mod tty;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_clinch");

/// A folder with a store of its own.
pub(crate) struct Sandbox {
    dir: PathBuf,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("clinch-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// The command on this store, in this folder. What the tests' own parent ignores, such as the
    /// interrupts that a shell keeps from its background jobs, is not ignored here.
    pub(crate) fn clinch(&self, args: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,QUIT,TERM", BIN]);
        self.prepare(&mut command);
        command.args(args);
        command
    }

    /// Any command in this folder, with `clinch` in its path and this store as the default.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let bin = Path::new(BIN).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command
            .env("PATH", path)
            .env("CLINCH_STORE", self.url())
            .env_remove("CLINCH_NAMESPACE")
            .env_remove("NO_COLOR")
            .current_dir(&self.dir)
            .stdin(Stdio::null());
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.clinch(args).output().unwrap())
    }

    /// Starts the command and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Proc {
        let mut command = self.clinch(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Proc(Some(command.spawn().unwrap()))
    }

    /// `list --json`.
    pub(crate) fn list(&self) -> Value {
        let ran = self.run(&["list", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()
    }

    /// Starts `run NAME -- sh -c SCRIPT` and waits until the script has said that it is ready, which
    /// it does with `ready`.
    pub(crate) fn start_job(&self, options: &[&str], script: &str) -> Proc {
        let script = format!("ready() {{ echo $$ > ready.tmp; mv ready.tmp ready; }}\n{script}");
        let _ = std::fs::remove_file(self.path("ready"));
        let args = [&["run"][..], options, &["--", "sh", "-c", &script]].concat();
        let proc = self.start(&args);
        self.until("the job is ready", || self.path("ready").exists());
        proc
    }

    /// The text of a file, empty when it does not exist.
    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// The process id that a job wrote into a file.
    pub(crate) fn pid(&self, file: &str) -> i32 {
        self.until(file, || self.read(file).ends_with('\n'));
        self.read(file).trim().parse().unwrap()
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        until(what, condition);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Waits until a condition holds; half a minute is far more than any needs.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never came to be that {what}");
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn error_json(&self) -> Value {
        serde_json::from_str(&self.err).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A running command; killed when the test ends before it does.
#[derive(Debug)]
pub(crate) struct Proc(pub(crate) Option<Child>);

impl Proc {
    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.as_ref().unwrap().id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    pub(crate) fn wait(mut self) -> Ran {
        Ran::from(self.0.take().unwrap().wait_with_output().unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child().try_wait().unwrap().is_some()
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The state letter of a process; `None` when there is none, or only its remains.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(state)
}

pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some()
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The first child of a process.
pub(crate) fn child(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}
