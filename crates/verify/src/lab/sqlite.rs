//! The embedded store: no server, so what is disturbed is its file.

use std::path::PathBuf;
use std::time::Duration;

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::{Disk, Folder};
use rusqlite::Connection;

use super::{Engine, EngineFault, disk, fault};
use crate::history::Renewals;

const SESSIONS: usize = 3;
const FULL: usize = 4;

/// The last one needs a small disk. Whoever is in a transaction keeps nobody from renewing (`docs/stores/sqlite.md`).
pub(super) const FAULTS: [EngineFault; 5] = [
    fault("database locked by another writer", &[]).but_renewals(Renewals::GoOn),
    fault("long reader that keeps the log from shrinking", &[]).but_renewals(Renewals::GoOn),
    fault("log folded into the database", &[]).but_renewals(Renewals::GoOn),
    fault("session files removed", &[]),
    disk::FULL,
];

pub(super) struct Sqlite {
    // Dropped in this order.
    disk: Option<Disk>,
    folder: Folder,
    /// The connection that disturbs, while it does.
    other: Option<Connection>,
}

impl Sqlite {
    pub(super) fn start() -> Result<Self> {
        let folder = Folder::new("verify-lab")?;
        Ok(Self {
            disk: match Disk::check() {
                Ok(()) => Some(Disk::mount(&folder, "disk", 384)?),
                Err(_) => None,
            },
            folder,
            other: None,
        })
    }

    fn file(&self) -> PathBuf {
        let disk = self.disk.as_ref().map(Disk::path);
        disk.unwrap_or_else(|| self.folder.path()).join("locks.db")
    }
}

impl Sqlite {
    /// As a cleaner of old files does. Whose session it was lives on.
    fn remove_sessions(&self) {
        let mut folder = self.file().into_os_string();
        folder.push(".sessions");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            // One that its process has just removed is gone as well.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Engine for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn faults(&self) -> Vec<EngineFault> {
        let mut faults = FAULTS.to_vec();
        if self.disk.is_none() {
            faults.truncate(FULL);
        }
        faults
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        if fault == FULL {
            disk::fill(self.disk.as_ref())?;
            return Ok(None);
        }
        if fault == SESSIONS {
            self.remove_sessions();
            return Ok(None);
        }
        let connection = Connection::open(self.file()).map_err(failed)?;
        connection
            .busy_timeout(Duration::from_secs(5))
            .map_err(failed)?;
        let words = match fault {
            0 => "BEGIN IMMEDIATE",
            1 => "BEGIN; SELECT count(*) FROM sqlite_schema",
            _ => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        connection.execute_batch(words).map_err(failed)?;
        self.other = Some(connection);
        Ok(None)
    }

    fn end(&mut self, _fault: usize) -> Result<()> {
        // An open transaction ends with its connection.
        self.other = None;
        disk::free(self.disk.as_ref())
    }

    fn file(&self) -> Option<PathBuf> {
        Some(Sqlite::file(self))
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn missing(&self) -> Vec<String> {
        disk::missing()
    }
}

fn failed(why: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the lab's database: {why}"))
}
