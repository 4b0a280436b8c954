//! A cache of names and watchers, valid until another connection commits.

use std::collections::HashMap;

use clinch_core::{ClientId, Name};
use rusqlite::Connection;

use crate::record::NameRecord;

/// The most cached names.
const MOST: usize = 1024;

/// Records as they are in the file, unless another connection has committed since.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// SQLite's counter of foreign commits when the records were read.
    version: i64,
    names: HashMap<Name, NameRecord>,
    watchers: Option<Vec<ClientId>>,
}

impl Cache {
    /// Clears the cache if another connection has committed. Call it inside a transaction, so that
    /// the result holds until its end.
    pub(crate) fn refresh(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let version = db
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if version != self.version {
            self.clear();
            self.version = version;
        }
        Ok(())
    }

    /// Clears the cache: after a rollback, and when rows are changed without it.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.watchers = None;
    }

    /// Takes a name out; the caller puts it back after saving it.
    pub(crate) fn take(&mut self, name: &Name) -> Option<NameRecord> {
        self.names.remove(name)
    }

    /// Puts a name in that is as in the file.
    pub(crate) fn put(&mut self, record: NameRecord) {
        if self.names.len() >= MOST {
            self.names.clear();
        }
        self.names.insert(record.state.name.clone(), record);
    }

    /// The watchers, read with `read` unless they are cached.
    pub(crate) fn watchers(
        &mut self,
        read: impl FnOnce() -> rusqlite::Result<Vec<ClientId>>,
    ) -> rusqlite::Result<Vec<ClientId>> {
        match &self.watchers {
            Some(cached) => Ok(cached.clone()),
            None => {
                let read = read()?;
                self.watchers = Some(read.clone());
                Ok(read)
            }
        }
    }
}
