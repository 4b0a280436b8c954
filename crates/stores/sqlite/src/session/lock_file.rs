//! A session file: its content, its permissions and its lock.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clinch_core::ClientId;

use crate::file::log::LogId;

/// The first bytes of a session file.
const MARK: u64 = u64::from_le_bytes(*b"clinch-3");

/// The session file of a client.
pub(super) fn path(folder: &Path, client: ClientId) -> PathBuf {
    folder.join(format!("{client}.lock"))
}

/// The files of a folder with this ending, each with its client.
pub(super) fn list(folder: &Path, end: &str) -> io::Result<Vec<(PathBuf, ClientId)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        let fits = file.extension().is_some_and(|ext| ext == end);
        let id = file
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        if let (true, Some(id)) = (fits, id) {
            found.push((file, id));
        }
    }
    Ok(found)
}

/// Writes the process of this file and the log that it writes to.
pub(super) fn write_head(file: &File, pid: u32, log: LogId) -> io::Result<()> {
    let numbers = [MARK, pid.into()].into_iter().chain(log.numbers());
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    file.write_all_at(&bytes, 0)
}

/// `None` if the file has no such head: an older clinch wrote nothing.
fn read_head(file: &File) -> Option<(u64, LogId)> {
    let mut bytes = [0; 48];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let log = LogId::from_numbers([number(16)?, number(24)?, number(32)?, number(40)?]);
    (number(0)? == MARK).then_some((number(8)?, log))
}

/// Makes the file readable for all users that can write the database; `false` if some of them may
/// not be able to read it.
pub(super) fn share(file: &File, db: &Path) -> io::Result<bool> {
    let db = fs::metadata(db)?;
    if rustix::process::geteuid().is_root() && db.uid() != 0 {
        use rustix::fs::{Gid, Uid, fchown};
        let (user, group) = (Uid::from_raw(db.uid()), Gid::from_raw(db.gid()));
        // If this is not permitted, the comparison below returns `false`.
        let _ = fchown(file, Some(user), Some(group));
    }
    let (group, others) = (db.mode() & 0o020 != 0, db.mode() & 0o002 != 0);
    let mode = 0o600 | if group { 0o040 } else { 0 } | if others { 0o044 } else { 0 };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    let own = file.metadata()?;
    Ok(others || (own.uid() == db.uid() || db.uid() == 0) && (!group || own.gid() == db.gid()))
}

/// The state of a file's lock.
#[derive(Debug)]
pub(super) enum Probe {
    Locked,
    /// Its process has ended; a shared lock is held while the file is kept.
    Unlocked(File),
    Missing,
}

/// Tries the lock of a session file.
pub(super) fn probe(path: &Path) -> Probe {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Probe::Missing,
        // A file that cannot be opened proves no death.
        Err(_) => return Probe::Locked,
    };
    // Shared, so that two probes at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => Probe::Unlocked(file),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Probe::Locked,
    }
}

/// A running client that may not write to the log in question.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignClient {
    /// Its process id.
    Process(u64),
    /// The session file, which this process cannot read.
    Unknown(PathBuf),
}

impl fmt::Display for ForeignClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => pid.fmt(f),
            Self::Unknown(path) => write!(f, "the one of {}", path.display()),
        }
    }
}

/// Running clients, except `me`, that may write to another log than this one.
pub(crate) fn foreign_clients(
    folder: &Path,
    log: Option<LogId>,
    me: Option<ClientId>,
) -> io::Result<Vec<ForeignClient>> {
    let files = match list(folder, "lock") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let mut found = Vec::new();
    for (path, id) in files {
        let head = File::open(&path).ok().and_then(|file| read_head(&file));
        let is_foreign = Some(id) != me && head.is_none_or(|(_, theirs)| Some(theirs) != log);
        if is_foreign && matches!(probe(&path), Probe::Locked) {
            found.push(head.map_or(ForeignClient::Unknown(path), |(pid, _)| {
                ForeignClient::Process(pid)
            }));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
