//! The process that keeps the writer's lock.
//!
//! SQLite locks byte 120 of the `-shm` file while it writes. `/proc/locks` lists the process that has
//! the lock. `fcntl` would need a descriptor of the file, and closing it would drop the locks that
//! SQLite holds on the file in this process.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::fs::{major, minor};

use super::{FileId, beside};

/// The byte that a writer locks.
const WRITE_LOCK: u64 = 120;

/// How often the list is read: the kernel omits lines if other locks change meanwhile.
const READS: u32 = 5;

/// The process that writes, or was stopped while it did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    pid: u32,
    stopped: bool,
}

impl Blocker {
    /// Finds it; `None` if its transaction has ended, or if it is in another pid namespace.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        let shm = FileId::of(&beside(path, "-shm")).ok()?;
        let read = |_| holder(&fs::read_to_string("/proc/locks").ok()?, shm);
        let pid = (0..READS).find_map(read)?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name of the program, which may contain anything.
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        let stopped = matches!(state, Some('T' | 't'));
        Some(Self { pid, stopped })
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.stopped { " (stopped)" } else { "" };
        write!(f, "process {}{state}", self.pid)
    }
}

/// Reads lines such as `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`.
fn holder(locks: &str, shm: FileId) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", major(shm.device), minor(shm.device));
    let holder = |exact: bool| {
        locks.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, "POSIX", _, "WRITE", pid, file, first, last] = *fields.as_slice() else {
                return None;
            };
            let (on, inode) = file.rsplit_once(':')?;
            let (first, last) = (first.parse().ok()?, last.parse().unwrap_or(u64::MAX));
            let fits = inode.parse() == Ok(shm.inode)
                && (on == device || !exact)
                && (first..=last).contains(&WRITE_LOCK);
            fits.then(|| pid.parse().ok()).flatten()
        })
    };
    // Some file systems (Btrfs, overlayfs) report different devices in the two places.
    holder(true).or_else(|| holder(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_writers_lock_is_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
            2: POSIX  ADVISORY  READ  12 08:01:77 120 120\n\
            3: POSIX  ADVISORY  WRITE 13 08:01:78 120 120\n\
            4: POSIX  ADVISORY  WRITE 14 08:01:77 123 127\n\
            5: -> POSIX  ADVISORY  WRITE 15 08:01:77 120 120\n\
            6: POSIX  ADVISORY  WRITE 16 08:01:77 120 121\n";
        let id = |inode| FileId {
            device: rustix::fs::makedev(8, 1),
            inode,
        };
        assert_eq!(holder(locks, id(77)), Some(16));
        assert_eq!(holder(locks, id(78)), Some(13));
        assert_eq!(holder(locks, id(79)), None);
        let other = FileId {
            device: rustix::fs::makedev(0, 40),
            inode: 77,
        };
        assert_eq!(holder(locks, other), Some(16));
    }
}
