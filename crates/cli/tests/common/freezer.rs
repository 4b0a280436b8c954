//! Processes that cannot be killed for now, as those that wait for a dead disk: frozen by a cgroup
//! (version 1; a frozen process of version 2 can be killed).
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails the test")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::until;

/// A cgroup of the test; what is in it goes on when the test ends.
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    /// `None` where there is no such cgroup, or no right to make one.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("clinch-cli-{}-{number}", std::process::id());
        let dir = PathBuf::from("/sys/fs/cgroup/freezer").join(name);
        if let Err(error) = std::fs::create_dir(&dir) {
            eprintln!("skipped: no freezer cgroup can be made here: {error}");
            return None;
        }
        Some(Self(dir))
    }

    pub(crate) fn freeze(&self, pid: i32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
        until("it is frozen", || {
            std::fs::read_to_string(self.0.join("freezer.state")).unwrap() == "FROZEN\n"
        });
    }

    pub(crate) fn thaw(&self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        // It can be removed once what was in it has gone.
        for _ in 0..400 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
