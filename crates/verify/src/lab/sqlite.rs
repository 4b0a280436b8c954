//! The embedded store: no server, so what is disturbed is its file.

use std::path::PathBuf;
use std::time::Duration;

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::Folder;
use rusqlite::Connection;

use super::{Engine, EngineFault};

const FAULTS: [EngineFault; 3] = [
    EngineFault {
        name: "database locked by another writer",
        excuses: &[],
    },
    EngineFault {
        name: "long reader that keeps the log from shrinking",
        excuses: &[],
    },
    EngineFault {
        name: "log folded into the database",
        excuses: &[],
    },
];

pub(super) struct Sqlite {
    folder: Folder,
    /// The connection that disturbs, while it does.
    other: Option<Connection>,
}

impl Sqlite {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            folder: Folder::new("verify-lab")?,
            other: None,
        })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }
}

impl Engine for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.to_vec()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
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
        Ok(())
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }
}

fn failed(why: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the lab's database: {why}"))
}
