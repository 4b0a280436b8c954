//! Sessions: a locked file for each open store, so that its death is seen at once.
//!
//! The kernel drops the lock of `<db>.sessions/<client>.lock` when its process ends, in whatever
//! way. Whoever finds a name taken tries the lock of its holder: success means that the holder is
//! dead, and its claims end without waiting for their leases.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clinch_core::{ClientId, ClientInfo, Result};

use crate::error::io as io_error;

/// This store's session, and the view on those of others.
#[derive(Debug)]
pub(crate) struct Sessions {
    folder: PathBuf,
    me: ClientInfo,
    /// The locked files: more than one after somebody removed the first, which stays locked for
    /// those who have it open.
    locked: Vec<File>,
}

impl Sessions {
    /// Makes and locks this client's file.
    pub(crate) fn start(db: &Path, me: &ClientInfo) -> Result<Self> {
        let mut folder = db.as_os_str().to_owned();
        folder.push(".sessions");
        let mut sessions = Self {
            folder: PathBuf::from(folder),
            me: me.clone(),
            locked: Vec::new(),
        };
        sessions
            .lock()
            .map_err(|error| io_error(error, &sessions.folder, "cannot keep a session"))?;
        Ok(sessions)
    }

    /// The folder of the sessions.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn lock(&mut self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = lock_file(&self.folder, self.me.id);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            // Waits only for a sweeper that tries the lock at this very moment.
            file.lock()?;
            // The sweeper may have taken the file for a dead one and removed it.
            if file.metadata()?.nlink() > 0 {
                self.locked.push(file);
                return Ok(());
            }
        }
    }

    /// Makes the file again if somebody has removed it: else others would take us for dead.
    pub(crate) fn keep(&mut self) {
        if self.locked.is_empty() {
            // The session has ended.
            return;
        }
        let path = lock_file(&self.folder, self.me.id);
        if fs::symlink_metadata(path).is_err() {
            tracing::warn!(folder = %self.folder.display(), "the session file was removed; making it again");
            if let Err(error) = self.lock() {
                tracing::warn!(%error, "cannot make the session file again");
            }
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

    /// The session files that nobody locks any more, held so that none comes to life meanwhile.
    pub(crate) fn stale(&self) -> io::Result<Vec<(ClientId, File)>> {
        let mut stale = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let file = file?.path();
            let is_lock = file.extension().is_some_and(|ext| ext == "lock");
            let id = file
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse().ok());
            if let (true, Some(id)) = (is_lock, id)
                && id != self.me.id
                && let Probe::Unlocked(held) = probe(&file)
            {
                stale.push((id, held));
            }
        }
        Ok(stale)
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
