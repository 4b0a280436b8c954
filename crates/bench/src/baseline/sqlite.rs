//! SQLite: one INSERT and one DELETE by primary key, each in its own transaction, in WAL mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use clinch::{Result, StoreUrl};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::baseline::{Baseline, Engine, HOLDER};

/// Scratch databases next to the store's file, one for each worker: workers do not wait for each other.
pub(super) struct Sqlite {
    /// Prefix of their paths.
    prefix: PathBuf,
    opened: AtomicU64,
}

impl Sqlite {
    pub(super) fn open(url: &StoreUrl, id: &str) -> Result<Self> {
        let mut prefix = clinch::sqlite::file_of(url)?.into_os_string();
        prefix.push(format!(".floor-{id}-"));
        Ok(Self {
            prefix: prefix.into(),
            opened: AtomicU64::default(),
        })
    }
}

#[async_trait]
impl Engine for Sqlite {
    async fn floor(&self) -> Result<Box<dyn Baseline>> {
        let mut path = self.prefix.clone().into_os_string();
        path.push(self.opened.fetch_add(1, Ordering::Relaxed).to_string());
        Ok(Box::new(Pairs::open(path.into())?))
    }
}

struct Pairs {
    path: PathBuf,
    db: Connection,
}

impl Pairs {
    fn open(path: PathBuf) -> Result<Self> {
        match connect(&path) {
            Ok(db) => Ok(Self { path, db }),
            Err(error) => {
                remove(&path);
                Err(failed(&error))
            }
        }
    }

    fn run(&self, key: i64) -> rusqlite::Result<()> {
        // Each statement is a transaction of its own.
        let insert = "INSERT INTO held (key, holder) VALUES (?1, ?2)";
        self.db.prepare_cached(insert)?.execute((key, HOLDER))?;
        let delete = "DELETE FROM held WHERE key = ?1";
        self.db.prepare_cached(delete)?.execute([key])?;
        Ok(())
    }
}

/// With the settings of the store, except that this connection makes the checkpoints itself.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.execute_batch(
        "PRAGMA synchronous = NORMAL;
         CREATE TABLE held (key INTEGER PRIMARY KEY, holder TEXT NOT NULL);",
    )?;
    Ok(db)
}

#[async_trait]
impl Baseline for Pairs {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let key = i64::try_from(key).unwrap_or(i64::MAX);
        self.run(key).map_err(|error| failed(&error))
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let mut path = path.as_os_str().to_owned();
        path.push(end);
        let _ = fs::remove_file(path);
    }
}

fn failed(error: &rusqlite::Error) -> clinch::Error {
    crate::internal(format!("the scratch database: {error}")).with_store("sqlite")
}
