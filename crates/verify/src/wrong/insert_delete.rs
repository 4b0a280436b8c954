//! A row is inserted to lock and deleted to unlock. The row of a client that died stays.

use std::path::PathBuf;
use std::time::Duration;

use clinch::store::StoreUrl;
use clinch::{Error, ErrorKind, Result};
use rusqlite::Connection;

use super::{Oops, RawLock, Taken};
use crate::history::{Scan, now};

pub(super) struct Lock {
    file: PathBuf,
    name: String,
}

impl Lock {
    pub(super) fn open(url: &str, name: String) -> Result<Self> {
        let url: StoreUrl = url.parse()?;
        let file = PathBuf::from(url.path()?);
        connect(&file).map_err(|why| failed(&why))?;
        Ok(Self { file, name })
    }
}

fn connect(file: &PathBuf) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let table = "CREATE TABLE IF NOT EXISTS locks (name TEXT PRIMARY KEY, owner TEXT)";
    connection.execute_batch(table)?;
    Ok(connection)
}

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let owner = std::process::id().to_string();
        let insert = "INSERT OR IGNORE INTO locks VALUES (?1, ?2)";
        let rows = connect(&self.file)?.execute(insert, (&self.name, &owner))?;
        let taken = Taken {
            owner,
            token: None,
            deadline: None,
        };
        Ok((rows == 1).then_some(taken))
    }

    async fn give_back(&mut self, _taken: &Taken) -> Result<(), Oops> {
        let delete = "DELETE FROM locks WHERE name = ?1";
        connect(&self.file)?.execute(delete, (&self.name,))?;
        Ok(())
    }

    fn needs(&self) -> u64 {
        20
    }
}

/// The rows that are left.
pub(super) fn leftovers(prefix: &str, url: &str) -> Result<Vec<Scan>> {
    let url: StoreUrl = url.parse()?;
    let read = || -> rusqlite::Result<Vec<Scan>> {
        let file = PathBuf::from(url.path().unwrap_or_default());
        let connection = connect(&file)?;
        let select = "SELECT name, owner FROM locks WHERE name LIKE ?1 || '%'";
        let mut rows = connection.prepare(select)?;
        let rows = rows.query_map([prefix], |row| {
            let owner: String = row.get(1)?;
            Ok(Scan {
                at: now(),
                lock: row.get(0)?,
                found: format!("a row of process {owner}, which has gone"),
            })
        })?;
        rows.collect()
    };
    read().map_err(|why| failed(&why))
}

fn failed(why: &rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the database: {why}"))
}
