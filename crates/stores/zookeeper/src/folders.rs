//! Cache of how this client found the folders of locks, which decides how it claims next.

use std::collections::HashMap;
use std::sync::Mutex;

use clinch_kit::lock;

use crate::record::FolderRecord;

/// Folders in the cache. It starts anew when it is full.
const CAPACITY: usize = 4096;

/// A folder, when this client last used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FolderState {
    /// It was empty after this client left it.
    Quiet(Box<LeftFolder>),
    /// Other claims were in it.
    Busy,
}

/// A folder after this client's release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftFolder {
    /// The zxid of its creation: the folder may have been removed and created again.
    pub(crate) created: i64,
    /// The version of its data.
    pub(crate) version: i32,
    /// The record that this client wrote.
    pub(crate) record: FolderRecord,
    /// The zxid of that write.
    pub(crate) written: i64,
}

/// Folder states by path.
#[derive(Debug, Default)]
pub(crate) struct FolderCache(Mutex<HashMap<String, FolderState>>);

impl FolderCache {
    pub(crate) fn get(&self, folder: &str) -> Option<FolderState> {
        lock(&self.0).get(folder).cloned()
    }

    pub(crate) fn set(&self, folder: &str, state: FolderState) {
        let mut folders = lock(&self.0);
        if let Some(known) = folders.get_mut(folder) {
            *known = state;
            return;
        }
        if folders.len() >= CAPACITY {
            folders.clear();
        }
        folders.insert(folder.to_owned(), state);
    }

    /// Removes a state that was found to be outdated.
    pub(crate) fn remove(&self, folder: &str) {
        lock(&self.0).remove(folder);
    }
}
