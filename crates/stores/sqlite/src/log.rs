//! The log next to the file: whether all running clients write to the same one.
//!
//! Removing `-wal` or `-shm` under running clients would split the store: each of them goes on with
//! a log that has no name any more, and a newcomer starts another one. So a client looks before each
//! transaction whether its log still has a name, and a newcomer asks the sessions of the running
//! clients which log they write to.

use std::path::Path;

use clinch_core::{ClientId, Error, ErrorKind, Result};

use crate::error::io as io_error;
use crate::file::{Anchor, FileId, beside};
use crate::session::strangers;

/// The log and its index, to notice that they were removed.
#[derive(Debug)]
pub(crate) struct Log {
    wal: Anchor,
    shm: Anchor,
}

impl Log {
    /// The log that a connection to this file has opened just now.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let anchor = |end| {
            let file = beside(path, end);
            Anchor::at(&file).map_err(|error| io_error(error, &file, "cannot be looked at"))
        };
        Ok(Self {
            wal: anchor("-wal")?,
            shm: anchor("-shm")?,
        })
    }

    /// Which log it is.
    pub(crate) fn id(&self) -> FileId {
        self.wal.id()
    }

    /// Whether one of the files was deleted: a look that costs next to nothing.
    pub(crate) fn is_deleted(&self) -> bool {
        self.wal.is_deleted() || self.shm.is_deleted()
    }

    /// Whether both are where they belong: they may also have been moved away.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.wal.is_at(&beside(path, "-wal")) && self.shm.is_at(&beside(path, "-shm"))
    }
}

/// Refuses to open a file without a log while clients run that have one.
pub(crate) fn refuse_lost(path: &Path) -> Result<()> {
    let is_empty = std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
    match FileId::of(&beside(path, "-wal")) {
        Ok(_) => Ok(()),
        // New, or made anew after it was deleted: there is nothing that a log could add.
        Err(_) if is_empty => Ok(()),
        // No file has these numbers.
        Err(_) => refuse_split(
            path,
            FileId {
                device: 0,
                inode: 0,
            },
            None,
        ),
    }
}

/// Refuses to go on with this log while clients run that write to another one.
pub(crate) fn refuse_split(path: &Path, log: FileId, me: Option<ClientId>) -> Result<()> {
    let pids = strangers(&beside(path, ".sessions"), log, me);
    if pids.is_empty() {
        return Ok(());
    }
    let pids: Vec<String> = pids.iter().map(u64::to_string).collect();
    Err(Error::new(
        ErrorKind::Unreachable,
        format!(
            "the log of {} was removed while processes use it: {}",
            path.display(),
            pids.join(", ")
        ),
    )
    .with_store("sqlite")
    .with_advice("end these processes; nothing is granted until then"))
}

/// What a client says whose log was removed.
pub(crate) fn removed(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "the log of {} was removed under this client, which can do nothing more",
            path.display()
        ),
    )
    .with_store("sqlite")
    .with_advice("connect again; nobody but clinch may remove files of a store that is in use")
}
