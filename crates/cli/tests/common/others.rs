//! A clinch of an ordinary user, whose job has a process of another user, as with `sudo`.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper of tests fails the test"
)]

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{BIN, Proc, Sandbox, kill};

/// Who runs clinch.
const USER: u32 = 65534;
/// The other user.
const OTHER: u32 = 65533;

/// What is needed for it; ends the other user's processes with the test.
pub(crate) struct Others(RefCell<Vec<i32>>);

impl Others {
    /// Prepares the folder; `None` where that is impossible.
    pub(crate) fn new(s: &Sandbox) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be several users");
            return None;
        }
        // In reach of the user, wherever it was built.
        let program = s.path("clinch");
        if fs::hard_link(BIN, &program).is_err() {
            fs::copy(BIN, &program).unwrap();
        }
        // As `sudo`: set-user-id, and then somebody else altogether.
        let setpriv = s.path("setpriv");
        fs::copy("/usr/bin/setpriv", &setpriv).unwrap();
        fs::set_permissions(&setpriv, fs::Permissions::from_mode(0o4755)).unwrap();
        let ids = format!("--reuid={OTHER} --regid={OTHER} --clear-groups");
        let script = format!("#!/bin/sh\nexec ./setpriv {ids} \"$@\"\n");
        fs::write(s.path("as-other"), script).unwrap();
        fs::set_permissions(s.path("as-other"), fs::Permissions::from_mode(0o755)).unwrap();
        chown(s.path(""), Some(USER), Some(USER)).unwrap();
        let try_it = Self::command(s, true, &["./as-other", "true"]).output();
        if !try_it.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no mount or no set-user-id here: {try_it:?}");
            return None;
        }
        Some(Self(RefCell::default()))
    }

    /// A command of the user; `hide` keeps the processes of others out of its `/proc`.
    fn command(s: &Sandbox, hide: bool, args: &[&str]) -> Command {
        let hide = if hide { "hidepid=2" } else { "hidepid=0" };
        let ids = format!("--reuid={USER} --regid={USER} --clear-groups");
        let script = format!("mount -t proc -o {hide} proc /proc && exec setpriv {ids} \"$@\"");
        let mut command = Command::new("unshare");
        s.prepare(&mut command);
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.args(args);
        command
    }

    /// Starts `run` as the user.
    pub(crate) fn start(&self, s: &Sandbox, hide: bool, options: &[&str], job: &[&str]) -> Proc {
        let args = [&["./clinch", "run"][..], options, &["--"], job].concat();
        let mut command = Self::command(s, hide, &args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Proc(Some(command.spawn().unwrap()))
    }

    /// Evicts the holder of `x`, as the user.
    pub(crate) fn evict(s: &Sandbox) {
        let mut evict = Self::command(s, false, &["./clinch", "evict", "x", "--yes"]);
        let output = evict.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The process that a job named in the file `other`, once it is the other user's.
    pub(crate) fn wait_for(&self, s: &Sandbox) -> i32 {
        let pid = s.pid("other");
        self.0.borrow_mut().push(pid);
        s.until("it is the other user's", || is_of_other(pid));
        pid
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for pid in self.0.get_mut() {
            if is_of_other(*pid) {
                kill(*pid, Signal::KILL);
            }
        }
    }
}

/// Whether a process runs, and is the other user's.
pub(crate) fn is_of_other(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains(&format!("\nUid:\t{OTHER}\t{OTHER}\t")) && super::is_alive(pid)
}
