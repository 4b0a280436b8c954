//! Sessions: a locked file for each open store, so that its death is seen at once.
//!
//! The kernel drops the lock of `<db>.sessions/<client>.lock` when its process ends, in whatever
//! way. A client that finds a name taken tries the lock of its holder: success means that the holder
//! is dead, and its claims end without waiting for their leases.
//!
//! The file contains the process and the log that it writes to (see `file/log.rs`), and perhaps
//! renewals (see `renewal_table.rs`).

pub(crate) mod dead_clients;
pub(crate) mod folder;
mod lock_file;
mod renewal_table;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clinch_core::{BootTime, ClientId, ClientInfo, RequestId, Result};

use crate::error::io as io_error;
use crate::file::log::LogId;
use crate::file::{FileId, beside};
pub(crate) use lock_file::{ForeignClient, foreign_clients};
use lock_file::{Probe, list, probe, share, write_head};
use renewal_table::RenewalTable;

/// This client's session, and its view of those of others.
#[derive(Debug)]
pub(crate) struct Sessions {
    db: PathBuf,
    folder: PathBuf,
    me: ClientInfo,
    /// The log that this client writes to.
    log: LogId,
    /// The locked files, the last one at its path. If the first was removed, it stays locked for
    /// clients that have it open.
    locked: Vec<File>,
    renewals: RenewalTable,
    /// Whether all users that can write the database can read this session's file.
    readable: bool,
    /// Whether the database has no record that the file is missing: see `dead_clients.rs`.
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
            renewals: RenewalTable::default(),
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

    /// Makes the file under a temporary name, and renames it after it is locked: it is never seen
    /// unlocked while this client lives.
    fn make(&mut self) -> Result<()> {
        folder::prepare(&self.folder, &self.db)?;
        let made = self.make_locked();
        made.map_err(|error| io_error(error, &self.folder, "cannot keep a session"))
    }

    fn make_locked(&mut self) -> io::Result<()> {
        let path = lock_file::path(&self.folder, self.me.id);
        let draft = path.with_extension("new");
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            // Waits only for a client that probes the lock at this moment.
            file.lock()?;
            self.readable = share(&file, &self.db)?;
            write_head(&file, self.me.pid, self.log)?;
            if !self.renewals.is_empty() {
                self.renewals.write(&file)?;
            }
            match fs::rename(&draft, &path) {
                Ok(()) => {}
                // Another client has removed the draft as that of a dead client.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if file_id(&file)? == FileId::of(&path)? {
                self.locked.push(file);
                return Ok(());
            }
        }
    }

    /// Makes the file again if it was removed: without it, this client cannot be seen to run.
    pub(crate) fn restore(&mut self) {
        if self.locked.is_empty() || self.is_in_place() {
            // The session has ended, or its file is in place.
            return;
        }
        tracing::warn!(folder = %self.folder.display(), "the session file was removed; making it again");
        // Others rely on its content only after the database says that it is there again.
        self.announced = false;
        if let Err(error) = self.make() {
            tracing::warn!(%error, "cannot make the session file again");
        }
    }

    fn is_in_place(&self) -> bool {
        let ours = self.locked.last().map(file_id);
        let path = lock_file::path(&self.folder, self.me.id);
        matches!((ours, FileId::of(&path)), (Some(Ok(ours)), Ok(there)) if ours == there)
    }

    /// Sets the log that this client writes to from now on.
    pub(crate) fn set_log(&mut self, log: LogId) -> io::Result<()> {
        self.log = log;
        match self.locked.last() {
            Some(file) => write_head(file, self.me.pid, log),
            None => Ok(()),
        }
    }

    /// Whether renewals can be written to the session file.
    pub(crate) fn can_renew(&self) -> bool {
        self.readable && self.announced && !self.locked.is_empty()
    }

    /// Writes renewals for others to read; `false` if they may not see them.
    pub(crate) fn renew(&mut self, renewed: &[(RequestId, BootTime)], now: BootTime) -> bool {
        if !self.can_renew() {
            return false;
        }
        let before = self.renewals.clone();
        let written = self.write_renewals(renewed, now);
        if !written {
            // This client must not rely on what others may not see.
            self.renewals = before;
        }
        written
    }

    fn write_renewals(&mut self, renewed: &[(RequestId, BootTime)], now: BootTime) -> bool {
        let (true, Some(file)) = (self.renewals.add(renewed, now), self.locked.last()) else {
            return false;
        };
        if let Err(error) = self.renewals.write(file) {
            tracing::warn!(%error, "cannot write to the session file");
            return false;
        }
        // After the write: if the file is removed later, its readers find it missing.
        self.is_in_place()
    }

    /// Until when this client's claim was renewed through its session file.
    pub(crate) fn own_renewal(&self, request: RequestId) -> Option<BootTime> {
        self.renewals.until(request)
    }

    /// Until when a claim of any client was renewed through its session file.
    pub(crate) fn renewal_of(&self, client: ClientId, request: RequestId) -> FileRenewal {
        if client == self.me.id {
            return self
                .own_renewal(request)
                .map_or(FileRenewal::Never, FileRenewal::Until);
        }
        let path = lock_file::path(&self.folder, client);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return FileRenewal::Missing,
            // A file without a table is too short for one, which its metadata shows.
            Err(_) => {
                return match fs::symlink_metadata(&path) {
                    Ok(meta) if meta.len() <= renewal_table::START => FileRenewal::Never,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => FileRenewal::Missing,
                    _ => FileRenewal::Unreadable,
                };
            }
        };
        match RenewalTable::read(&file) {
            Ok(Some(renewals)) => renewals
                .until(request)
                .map_or(FileRenewal::Never, FileRenewal::Until),
            Ok(None) | Err(_) => FileRenewal::Unreadable,
        }
    }

    /// Whether a client runs, by the lock of its session file.
    pub(crate) fn liveness(&self, client: ClientId) -> Liveness {
        if client == self.me.id {
            return Liveness::Alive;
        }
        match probe(&lock_file::path(&self.folder, client)) {
            Probe::Locked => Liveness::Alive,
            Probe::Unlocked(_held) => Liveness::Dead,
            Probe::Missing => Liveness::Unknown,
        }
    }

    /// Whether a client's session has ended, in whatever way.
    pub(crate) fn has_ended(&self, client: ClientId) -> bool {
        client != self.me.id
            && !matches!(probe(&lock_file::path(&self.folder, client)), Probe::Locked)
    }

    /// Removes what a dead client left in the folder.
    fn remove(&self, client: ClientId) {
        // Another client may have removed them. The socket first: a lock file shows that there is
        // something to remove.
        let _ = fs::remove_file(socket_path(&self.folder, client));
        let _ = fs::remove_file(lock_file::path(&self.folder, client));
    }

    /// The session files of dead clients, locked until the caller has recorded their deaths.
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

    /// Removes the drafts of clients that died while they made their session file.
    pub(crate) fn remove_drafts(&self) {
        for (path, _) in list(&self.folder, "new").unwrap_or_default() {
            if let Probe::Unlocked(_held) = probe(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Removes the file of a client that was recorded as dead. The record must be committed before: a
    /// missing file without a record counts as that of a running client.
    pub(crate) fn remove_dead(&self, client: ClientId) {
        if let Probe::Unlocked(_held) = probe(&lock_file::path(&self.folder, client)) {
            self.remove(client);
        }
    }

    /// Ends the session. With `remove` the file is removed; without, others find it unlocked,
    /// because claims of this client may be left.
    pub(crate) fn end(&mut self, remove: bool) {
        if remove && !self.locked.is_empty() {
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

/// Whether a client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It holds the lock of its file.
    Alive,
    /// The lock is free: the process has died.
    Dead,
    /// There is no file: found dead before, or removed by mistake. See [`dead_clients`].
    Unknown,
}

/// The renewal of one claim in a session file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRenewal {
    /// It was renewed there, until this moment.
    Until(BootTime),
    /// It was not renewed there.
    Never,
    /// There is no file: its renewals are lost.
    Missing,
    /// This process cannot read the file.
    Unreadable,
}

fn file_id(file: &File) -> io::Result<FileId> {
    file.metadata().map(|meta| FileId::from(&meta))
}

/// The socket at which a client can be woken.
pub(crate) fn socket_path(folder: &Path, client: ClientId) -> PathBuf {
    folder.join(format!("{client}.sock"))
}
