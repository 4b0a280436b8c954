//! What a lock on SQLite costs at least.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use clinch_core::store::Floor;
use clinch_core::{ClientId, Result};
use rusqlite::Connection;

use crate::error::sql;
use crate::rows::column;
use crate::schema;

/// One insert and one delete by primary key, each in its transaction, with the same settings.
#[derive(Debug)]
pub(crate) struct PairFloor {
    path: PathBuf,
    db: Connection,
}

impl PairFloor {
    /// Makes a scratch database next to the store.
    pub(crate) fn open(store: &Path, me: ClientId) -> Result<Self> {
        let mut path = store.as_os_str().to_owned();
        path.push(format!(
            ".floor-{me}-{}",
            clinch_core::Clock::boot().now().as_nanos()
        ));
        let path = PathBuf::from(path);
        let failed = |error| sql(error, &path);
        let db = schema::open_raw(&path).map_err(failed)?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
            .map_err(failed)?;
        schema::tune(&db).map_err(failed)?;
        // No thread of its own does the checkpoints here.
        db.execute_batch(
            "PRAGMA wal_autocheckpoint = 1000;
             CREATE TABLE held (key INTEGER PRIMARY KEY, holder TEXT NOT NULL);",
        )
        .map_err(failed)?;
        Ok(Self { path, db })
    }

    fn run(&self, key: u64) -> rusqlite::Result<()> {
        let begin = || self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([]);
        let commit = || self.db.prepare_cached("COMMIT")?.execute([]);
        begin()?;
        self.db
            .prepare_cached("INSERT INTO held (key, holder) VALUES (?1, 'the one who holds it')")?
            .execute([column(key)])?;
        commit()?;
        begin()?;
        self.db
            .prepare_cached("DELETE FROM held WHERE key = ?1")?
            .execute([column(key)])?;
        commit()?;
        Ok(())
    }
}

#[async_trait]
impl Floor for PairFloor {
    async fn pair(&mut self, key: u64) -> Result<()> {
        self.run(key).map_err(|error| sql(error, &self.path))
    }
}

impl Drop for PairFloor {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let mut path = self.path.as_os_str().to_owned();
            path.push(end);
            let _ = fs::remove_file(path);
        }
    }
}
