//! Sessions: a locked file for each open store, so that its death is seen at once.
//!
//! The kernel drops the lock of `<db>.sessions/<client>.lock` when its process ends, in whatever
//! way. Whoever finds a name taken tries the lock of its holder: success means that the holder is
//! dead, and its claims end without waiting for their leases.
//!
//! The file says which process it is and which log that process writes to (see `log.rs`), and may
//! have renewals in it (see `beats.rs`).

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clinch_core::{BootTime, ClientId, ClientInfo, RequestId, Result};

use crate::beats::{self, Beats};
use crate::error::io as io_error;
use crate::file::{FileId, beside};
use crate::folder;
use crate::log::LogId;

/// This store's session, and the view on those of others.
#[derive(Debug)]
pub(crate) struct Sessions {
    db: PathBuf,
    folder: PathBuf,
    me: ClientInfo,
    /// The log that this client writes to.
    log: LogId,
    /// The locked files, the last one at its path: more than one after somebody removed the first,
    /// which stays locked for those who have it open.
    locked: Vec<File>,
    beats: Beats,
    /// Whether everybody who can write the database can read this session's file.
    readable: bool,
    /// Whether the database says that the file is there: see `dead.rs`.
    pub(crate) announced: bool,
}

impl Sessions {
    /// Makes and locks this client's file.
    pub(crate) fn start(db: &Path, me: &ClientInfo, log: LogId) -> Result<Self> {
        let mut sessions = Self {
            db: db.to_owned(),
            folder: beside(db, ".sessions"),
            me: me.clone(),
            log,
            locked: Vec::new(),
            beats: Beats::default(),
            readable: false,
            announced: true,
        };
        sessions.make()?;
        Ok(sessions)
    }

    /// The folder of the sessions.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the file under another name and locks it before it gets its own: nobody ever finds it
    /// unlocked while this client lives.
    fn make(&mut self) -> Result<()> {
        folder::prepare(&self.folder, &self.db)?;
        let made = self.make_locked();
        made.map_err(|error| io_error(error, &self.folder, "cannot keep a session"))
    }

    fn make_locked(&mut self) -> io::Result<()> {
        let path = lock_file(&self.folder, self.me.id);
        let draft = path.with_extension("new");
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            // Waits only for a sweeper that tries the lock at this very moment.
            file.lock()?;
            self.readable = share(&file, &self.db)?;
            write_about(&file, self.me.pid, self.log)?;
            if !self.beats.is_empty() {
                self.beats.write(&file)?;
            }
            match fs::rename(&draft, &path) {
                Ok(()) => {}
                // A sweeper has taken the draft for that of a dead client.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if file_id(&file)? == FileId::of(&path)? {
                self.locked.push(file);
                return Ok(());
            }
        }
    }

    /// Makes the file again if somebody has removed it: else others would take us for dead.
    pub(crate) fn keep(&mut self) {
        if self.locked.is_empty() || self.is_in_place() {
            // The session has ended, or is as it should be.
            return;
        }
        tracing::warn!(folder = %self.folder.display(), "the session file was removed; making it again");
        // Not before the database says so again may others rely on its content.
        self.announced = false;
        if let Err(error) = self.make() {
            tracing::warn!(%error, "cannot make the session file again");
        }
    }

    fn is_in_place(&self) -> bool {
        let ours = self.locked.last().map(file_id);
        let path = lock_file(&self.folder, self.me.id);
        matches!((ours, FileId::of(&path)), (Some(Ok(ours)), Ok(there)) if ours == there)
    }

    /// Says which log this client writes to from now on.
    pub(crate) fn set_log(&mut self, log: LogId) -> io::Result<()> {
        self.log = log;
        match self.locked.last() {
            Some(file) => write_about(file, self.me.pid, log),
            None => Ok(()),
        }
    }

    /// Whether renewals can be written to the session file.
    pub(crate) fn can_beat(&self) -> bool {
        self.readable && self.announced && !self.locked.is_empty()
    }

    /// Writes renewals for others to read; `false` if they may not see them.
    pub(crate) fn beat(&mut self, renewed: &[(RequestId, BootTime)], now: BootTime) -> bool {
        if !self.can_beat() {
            return false;
        }
        let before = self.beats.clone();
        let written = self.write_beats(renewed, now);
        if !written {
            // What others may not see, this client must not count on either.
            self.beats = before;
        }
        written
    }

    fn write_beats(&mut self, renewed: &[(RequestId, BootTime)], now: BootTime) -> bool {
        let (true, Some(file)) = (self.beats.add(renewed, now), self.locked.last()) else {
            return false;
        };
        if let Err(error) = self.beats.write(file) {
            tracing::warn!(%error, "cannot write to the session file");
            return false;
        }
        // After the write: a file that is removed later is missed by those who look for it.
        self.is_in_place()
    }

    /// Until when this client's claim was renewed through its session file.
    pub(crate) fn own_beat(&self, request: RequestId) -> Option<BootTime> {
        self.beats.until(request)
    }

    /// Until when a claim of any client was renewed through its session file.
    pub(crate) fn beat_of(&self, client: ClientId, request: RequestId) -> Beat {
        if client == self.me.id {
            return self.own_beat(request).map_or(Beat::Never, Beat::Until);
        }
        let path = lock_file(&self.folder, client);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Beat::Missing,
            // A file that never had a table is too short for one, and that can be seen.
            Err(_) => {
                return match fs::symlink_metadata(&path) {
                    Ok(meta) if meta.len() <= beats::START => Beat::Never,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Beat::Missing,
                    _ => Beat::Unreadable,
                };
            }
        };
        match Beats::read(&file) {
            Ok(Some(beats)) => beats.until(request).map_or(Beat::Never, Beat::Until),
            Ok(None) | Err(_) => Beat::Unreadable,
        }
    }

    /// What the session file of a client says of it.
    pub(crate) fn look(&self, client: ClientId) -> Life {
        if client == self.me.id {
            return Life::Alive;
        }
        match probe(&lock_file(&self.folder, client)) {
            Probe::Locked => Life::Alive,
            Probe::Unlocked(_held) => Life::Dead,
            Probe::Missing => Life::Unknown,
        }
    }

    /// Whether a client's session has ended, in whatever way.
    pub(crate) fn is_gone(&self, client: ClientId) -> bool {
        client != self.me.id && !matches!(probe(&lock_file(&self.folder, client)), Probe::Locked)
    }

    /// Removes what a dead client left in the folder.
    fn remove(&self, client: ClientId) {
        // Somebody else may have been faster. The socket first: a lock file shows that there is
        // something to remove.
        let _ = fs::remove_file(door(&self.folder, client));
        let _ = fs::remove_file(lock_file(&self.folder, client));
    }

    /// The session files that nobody locks any more, held until the caller has written them down.
    pub(crate) fn stale(&self) -> io::Result<Vec<(ClientId, File)>> {
        let mut stale = Vec::new();
        for (path, id) in list(&self.folder, "lock")? {
            if id != self.me.id
                && let Probe::Unlocked(held) = probe(&path)
            {
                stale.push((id, held));
            }
        }
        Ok(stale)
    }

    /// Removes what clients left that died while they made their session file.
    pub(crate) fn sweep_drafts(&self) {
        for (path, _) in list(&self.folder, "new").unwrap_or_default() {
            if let Probe::Unlocked(_held) = probe(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Removes the file of a client that has been written down as dead. Not before that is
    /// committed: whoever finds the file missing, and no such record, takes the client for alive.
    pub(crate) fn remove_dead(&self, client: ClientId) {
        if let Probe::Unlocked(_held) = probe(&lock_file(&self.folder, client)) {
            self.remove(client);
        }
    }

    /// Ends the session. With `tidy` the file goes too; without, it stays for others to find
    /// unlocked, because claims of this client may be left.
    pub(crate) fn end(&mut self, tidy: bool) {
        if tidy && !self.locked.is_empty() {
            self.remove(self.me.id);
        }
        self.locked.clear();
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// What is known of a client from its session file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It holds the lock of its file.
    Alive,
    /// Nobody holds it: the process has died.
    Dead,
    /// There is no file: found dead before, or removed by mistake. See [`crate::dead`].
    Unknown,
}

/// What a session file says of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// It was renewed there, until this moment.
    Until(BootTime),
    /// It was not renewed there.
    Never,
    /// There is no file: what it said is lost.
    Missing,
    /// There is something that this process cannot read.
    Unreadable,
}

/// A running client that does not write to the log in question, as far as can be told.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stranger {
    /// Its process id.
    Process(u64),
    /// The session file, which this process cannot read.
    Unknown(PathBuf),
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => pid.fmt(f),
            Self::Unknown(path) => write!(f, "the one of {}", path.display()),
        }
    }
}

/// Running clients that may write to another log than this one.
pub(crate) fn strangers(
    folder: &Path,
    log: Option<LogId>,
    me: Option<ClientId>,
) -> io::Result<Vec<Stranger>> {
    let files = match list(folder, "lock") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let mut found = Vec::new();
    for (path, id) in files {
        let about = File::open(&path).ok().and_then(|file| read_about(&file));
        let is_one = Some(id) != me && about.is_none_or(|(_, theirs)| Some(theirs) != log);
        if is_one && matches!(probe(&path), Probe::Locked) {
            found.push(about.map_or(Stranger::Unknown(path), |(pid, _)| Stranger::Process(pid)));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The files of a folder with this ending, and whose they are.
fn list(folder: &Path, end: &str) -> io::Result<Vec<(PathBuf, ClientId)>> {
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

/// The first bytes of a session file.
const MARK: u64 = u64::from_le_bytes(*b"clinch-3");

/// Says whose file this is and which log its process writes to.
fn write_about(file: &File, pid: u32, log: LogId) -> io::Result<()> {
    let numbers = [MARK, pid.into()].into_iter().chain(log.numbers());
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    file.write_all_at(&bytes, 0)
}

/// `None` if it does not say, or not in this way: an older clinch wrote nothing.
fn read_about(file: &File) -> Option<(u64, LogId)> {
    let mut bytes = [0; 48];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let log = LogId::from_numbers([number(16)?, number(24)?, number(32)?, number(40)?]);
    (number(0)? == MARK).then_some((number(8)?, log))
}

/// Lets those read the file who can write the database; `false` if some of them may not be able to.
fn share(file: &File, db: &Path) -> io::Result<bool> {
    let db = fs::metadata(db)?;
    if rustix::process::geteuid().is_root() && db.uid() != 0 {
        use rustix::fs::{Gid, Uid, fchown};
        let (user, group) = (Uid::from_raw(db.uid()), Gid::from_raw(db.gid()));
        // Without the right to do so, the rest of this function sees that it was not done.
        let _ = fchown(file, Some(user), Some(group));
    }
    let (group, others) = (db.mode() & 0o020 != 0, db.mode() & 0o002 != 0);
    let mode = 0o600 | if group { 0o040 } else { 0 } | if others { 0o044 } else { 0 };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    let own = file.metadata()?;
    Ok(others || (own.uid() == db.uid() || db.uid() == 0) && (!group || own.gid() == db.gid()))
}

fn file_id(file: &File) -> io::Result<FileId> {
    file.metadata().map(|meta| FileId::from(&meta))
}

#[derive(Debug)]
enum Probe {
    Locked,
    /// Nobody's, and now ours for as long as the file is kept.
    Unlocked(File),
    Missing,
}

fn probe(path: &Path) -> Probe {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Probe::Missing,
        // Whoever cannot look must not declare anybody dead.
        Err(_) => return Probe::Locked,
    };
    // Shared, so that two who look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => Probe::Unlocked(file),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Probe::Locked,
    }
}

fn lock_file(folder: &Path, client: ClientId) -> PathBuf {
    folder.join(format!("{client}.lock"))
}

/// The socket at which a client can be woken.
pub(crate) fn door(folder: &Path, client: ClientId) -> PathBuf {
    folder.join(format!("{client}.sock"))
}
