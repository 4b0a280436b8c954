//! Opens a store from its URL.

use std::sync::Arc;

use clinch_core::store::OpenContext;
use clinch_core::{Result, StoreUrl};

use crate::SqliteStore;
use crate::batch::Batcher;
use crate::config::Config;
use crate::connection::Database;
use crate::sequence::{Micros, wall};
use crate::wakes::WakeSocket;
use crate::wakes::process_watch::ProcessWatch;

impl SqliteStore {
    /// Opens `sqlite:PATH`, or the user's default file for `sqlite:` alone.
    ///
    /// A missing file is made, readable for its owner only. A file that is not a store of clinch is
    /// refused with [`Corrupt`](clinch_core::ErrorKind::Corrupt) and left as it is.
    ///
    /// The URL takes `busy=DURATION`: how long an operation waits for the transactions of other
    /// processes (5 s by default).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("clinch-doc-open-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let file = folder.join("locks.db");
    /// use clinch_core::{Clinch, ErrorKind};
    /// std::fs::write(&file, "my notes, a few hundred bytes of them. ".repeat(20))?;
    /// let url = format!("sqlite:{}", file.display()).parse()?;
    /// let error = clinch_sqlite::SqliteStore::open(&url, Clinch::context("app")?).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Corrupt);
    /// assert!(std::fs::read_to_string(&file)?.starts_with("my notes")); // left as it is
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn open(url: &StoreUrl, context: OpenContext) -> Result<Self> {
        Self::open_with(url, context, wall()).map_err(|error| error.or_store("sqlite"))
    }

    pub(crate) fn open_with(url: &StoreUrl, context: OpenContext, micros: Micros) -> Result<Self> {
        let config = Config::from_url(url)?;
        let (busy, client) = (config.busy, context.identity.info().clone());
        let database = Database::open(config, context, micros)?;
        let wakes = Arc::new(WakeSocket::new(database.sessions.folder(), client.id));
        Ok(Self {
            info: Self::describe(),
            me: client.id,
            pid: client.pid,
            path: database.path.clone(),
            batcher: Arc::new(Batcher::new(database, busy, wakes.clone())),
            processes: Arc::new(ProcessWatch::new(wakes)),
        })
    }
}
