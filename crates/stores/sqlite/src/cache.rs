//! What this connection knows without asking: names and watchers, for as long as nobody else writes.

use std::collections::HashMap;

use clinch_core::{ClientId, Name};
use rusqlite::Connection;

use crate::rows::NameRow;

/// The most names that are kept.
const MOST: usize = 1024;

/// Rows as they are in the file, unless another connection has written since.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// SQLite's counter of foreign commits when the rest was read.
    version: i64,
    names: HashMap<Name, NameRow>,
    watchers: Option<Vec<ClientId>>,
}

impl Cache {
    /// Forgets everything if another connection has committed. Inside a transaction, so that the
    /// answer holds until its end.
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

    /// Forgets everything: after a rollback, and when rows are changed behind its back.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.watchers = None;
    }

    /// Takes a name out; whoever changes it puts it back once it is saved.
    pub(crate) fn take(&mut self, name: &Name) -> Option<NameRow> {
        self.names.remove(name)
    }

    /// Keeps a name that is as it is in the file.
    pub(crate) fn put(&mut self, row: NameRow) {
        if self.names.len() >= MOST {
            self.names.clear();
        }
        self.names.insert(row.state.name.clone(), row);
    }

    /// The watchers, read with `read` unless they are known.
    pub(crate) fn watchers(
        &mut self,
        read: impl FnOnce() -> rusqlite::Result<Vec<ClientId>>,
    ) -> rusqlite::Result<Vec<ClientId>> {
        match &self.watchers {
            Some(known) => Ok(known.clone()),
            None => {
                let read = read()?;
                self.watchers = Some(read.clone());
                Ok(read)
            }
        }
    }
}
