//! The conformance suite on the embedded store.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Error, ErrorKind, Result};
use clinch_sqlite::SqliteStore;
use clinch_testkit::conformance::{self, Place, Subject};
use rusqlite::{Connection, OpenFlags};

fn main() -> std::process::ExitCode {
    conformance::main(vec![Box::new(Sqlite)])
}

struct Sqlite;

#[async_trait]
impl Subject for Sqlite {
    fn name(&self) -> String {
        "sqlite".into()
    }

    fn info(&self) -> StoreInfo {
        SqliteStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(Folder::new()))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        Ok(Arc::new(SqliteStore::open(&url.parse()?, context)?))
    }

    fn sees_death(&self) -> bool {
        true
    }
}

/// A folder of its own for each case, removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("clinch-conformance-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("locks.db")
    }

    fn scan(&self) -> rusqlite::Result<Vec<String>> {
        let file = Connection::open_with_flags(self.file(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut left = Vec::new();
        for query in [
            "SELECT count(*) FROM waiters",
            "SELECT count(*) FROM names WHERE waiting > 0",
            "SELECT count(*) FROM watchers",
        ] {
            let rows: i64 = file.query_row(query, [], |row| row.get(0))?;
            if rows > 0 {
                left.push(format!("{rows} = {query}"));
            }
        }
        Ok(left)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left in the temporary folder at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[async_trait]
impl Place for Folder {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    async fn lose_data(&self) -> Result<bool> {
        let failed = |error| Error::new(ErrorKind::Internal, format!("{error}"));
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            match path.is_dir() {
                true => std::fs::remove_dir_all(path),
                false => std::fs::remove_file(path),
            }
            .map_err(failed)?;
        }
        Ok(true)
    }

    /// Rows of the queue and of listeners, and session files of clients that have ended.
    async fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = match self.file().exists() {
            true => self
                .scan()
                .map_err(|error| Error::new(ErrorKind::Internal, format!("{error}")))?,
            false => Vec::new(),
        };
        if let Ok(sessions) = std::fs::read_dir(self.0.join("locks.db.sessions")) {
            left.extend(sessions.flatten().map(|e| format!("{:?}", e.file_name())));
        }
        Ok(left)
    }
}
