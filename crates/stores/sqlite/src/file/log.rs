//! The log next to the file: whether all running clients write to the same one.
//!
//! If `-wal` or `-shm` is removed under running clients, the store would split: they continue with a
//! log that has no name any more, and a new client starts another one. So a client checks before each
//! transaction that its log still has a name, and a new client reads from the session files which log
//! the running clients write to. The two files are one log: SQLite continues with an index that was
//! removed, and a client with another index would overwrite what it does not see.

use std::fmt;
use std::path::Path;

use clinch_core::{ClientId, Error, ErrorKind, Result};

use crate::error::io as io_error;
use crate::file::{FileId, PinnedFile, beside};
use crate::session::{ForeignClient, foreign_clients};

/// The identity of a log and its index: a client with another index does not see what others write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogId {
    wal: FileId,
    shm: FileId,
}

impl LogId {
    pub(crate) fn numbers(self) -> [u64; 4] {
        let Self { wal, shm } = self;
        [wal.device, wal.inode, shm.device, shm.inode]
    }

    pub(crate) fn from_numbers([device, inode, shm_device, shm_inode]: [u64; 4]) -> Self {
        Self {
            wal: FileId { device, inode },
            shm: FileId {
                device: shm_device,
                inode: shm_inode,
            },
        }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.numbers();
        write!(f, "{a}:{b} {c}:{d}")
    }
}

/// The log and its index, to notice that they were removed.
#[derive(Debug)]
pub(crate) struct Log {
    wal: PinnedFile,
    shm: PinnedFile,
}

impl Log {
    /// The log that a connection to this file has opened just now.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let anchor = |end| {
            let file = beside(path, end);
            PinnedFile::at(&file).map_err(|error| io_error(error, &file, "cannot be read"))
        };
        Ok(Self {
            wal: anchor("-wal")?,
            shm: anchor("-shm")?,
        })
    }

    /// Which log it is.
    pub(crate) fn id(&self) -> LogId {
        LogId {
            wal: self.wal.id(),
            shm: self.shm.id(),
        }
    }

    /// Whether one of the files was deleted. Cheap: two `fstat` calls.
    pub(crate) fn is_deleted(&self) -> bool {
        self.wal.is_deleted() || self.shm.is_deleted()
    }

    /// Whether both are at their paths: they may also have been moved away.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.wal.is_at(&beside(path, "-wal")) && self.shm.is_at(&beside(path, "-shm"))
    }
}

/// Refuses to open a file without a log while clients run that have one.
pub(crate) fn refuse_lost(path: &Path) -> Result<()> {
    check_lost(|| has_log(path), || refuse_split(path, None, None))
}

fn check_lost(
    mut has_log: impl FnMut() -> bool,
    refuse: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if has_log() {
        return Ok(());
    }
    match refuse() {
        // Another process was creating the file, and has opened the log and its session since the
        // first check. Whether all clients use the same log is checked again when it is open.
        Err(_) if has_log() => Ok(()),
        judged => judged,
    }
}

fn has_log(path: &Path) -> bool {
    // New, or created again after it was deleted: a log could add nothing.
    std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0)
        || ["-wal", "-shm"]
            .iter()
            .all(|end| FileId::of(&beside(path, end)).is_ok())
}

/// Refuses to use this log, or to start one, while clients run that write to another one.
pub(crate) fn refuse_split(path: &Path, log: Option<LogId>, me: Option<ClientId>) -> Result<()> {
    let folder = beside(path, ".sessions");
    let found = foreign_clients(&folder, log, me)
        .map_err(|error| io_error(error, &folder, "cannot be listed"))?;
    if found.is_empty() {
        return Ok(());
    }
    let named = found
        .iter()
        .any(|one| matches!(one, ForeignClient::Process(_)));
    let what = match named {
        true => "was removed while processes use it",
        // Of an older clinch, or of a user whose files cannot be read.
        false => "may not be the one of clients whose sessions cannot be read",
    };
    let found: Vec<String> = found.iter().map(ForeignClient::to_string).collect();
    Err(Error::new(
        ErrorKind::Unreachable,
        format!("the log of {} {what}: {}", path.display(), found.join(", ")),
    )
    .with_advice("end these processes; nothing is granted until then"))
}

/// The error of a client whose log was removed.
pub(crate) fn removed(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "the log of {} was removed under this client, which can do nothing more",
            path.display()
        ),
    )
    .with_advice("connect again; do not remove files of a store that is in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_being_made_is_not_taken_for_a_removed_one() {
        let refuse = || Err(removed(Path::new("locks.db")));
        assert!(check_lost(|| true, refuse).is_ok());
        assert!(check_lost(|| false, refuse).is_err());
        // Between the two checks another process has opened the log and its session.
        let mut checks = [false, true].into_iter();
        assert!(check_lost(|| checks.next().unwrap(), refuse).is_ok());
        assert!(check_lost(|| false, || Ok(())).is_ok());
    }
}
