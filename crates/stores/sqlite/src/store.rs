//! The embedded store.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, ReleaseReply, RenewReply, Renewal, Store, StoreInfo,
    Suspicions, Wakes,
};
use clinch_core::{ClientId, Name, Result};

use crate::batch::{Batcher, Route};
use crate::connection::Database;
use crate::error::no_answer;
use crate::wakes::process_watch::ProcessWatch;
use crate::{claim, inspect, release};

/// Locks in a SQLite file, for the processes of one machine.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, store::Store};
/// use clinch_sqlite::SqliteStore;
/// # let folder = std::env::temp_dir();
/// # let file = folder.join(format!("clinch-doc-{}.db", std::process::id()));
/// let url = format!("sqlite:{}", file.display()).parse()?;
/// let store = SqliteStore::open(&url, Clinch::context("app")?)?;
/// assert_eq!(store.info().scheme, "sqlite");
/// # drop(store);
/// # for end in ["", "-wal", "-shm"] {
/// #     let _ = std::fs::remove_file(format!("{}{end}", file.display()));
/// # }
/// # let _ = std::fs::remove_dir_all(format!("{}.sessions", file.display()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) info: StoreInfo,
    pub(crate) me: ClientId,
    pub(crate) pid: u32,
    pub(crate) path: PathBuf,
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) processes: Arc<ProcessWatch>,
}

impl SqliteStore {
    /// The absolute path of the file.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// # use clinch_core::Clinch;
    /// # let folder = std::env::temp_dir().join(format!("clinch-doc-path-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let file = folder.join("locks.db");
    /// # let url = format!("sqlite:{}", file.display()).parse()?;
    /// use clinch_sqlite::SqliteStore;
    /// let store = SqliteStore::open(&url, Clinch::context("app")?)?;
    /// assert!(store.path().is_absolute());
    /// # drop(store);
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(()) }
    /// ```
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let (sent, pid) = (claim.clone(), self.pid);
        // Whether others can reach this client from the moment of the commit.
        let reachable = self.batcher.wakes().is_bound();
        let (reply, ahead) = self
            .batcher
            .call(Route::Inline, move |tx| claim::claim(tx, &sent, pid))
            .await?;
        if !ahead.is_empty() {
            self.processes.watch(claim.request, &ahead);
        }
        Ok(match reply {
            ClaimReply::Queued(queued) => ClaimReply::Queued(queued.with_wakes_kept(reachable)),
            other => other,
        })
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.batcher.wakes().register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.batcher.renew(renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        // A removed file or log is noticed by the next transaction, such as that of a renewal.
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let hold = hold.clone();
        self.batcher
            .call(Route::Inline, move |tx| release::release(tx, &hold))
            .await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let claim = claim.clone();
        self.batcher
            .call(Route::Inline, move |tx| release::withdraw(tx, &claim))
            .await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let name = name.clone();
        self.batcher
            .call(Route::Inline, move |tx| inspect::check(tx, &name, seq))
            .await
    }

    async fn close(&self) -> Result<()> {
        let me = self.me;
        let Some(ended) = self.batcher.close(move |tx| release::end_all(tx, me)) else {
            return Ok(());
        };
        let ended = ended.await.unwrap_or_else(|_| Err(no_answer()));
        self.batcher.with_database(Database::finish);
        ended
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if self.batcher.is_forked() {
            // The session, the connection and the locks are those of the parent. None of them may be
            // closed here, so they stay until this process ends.
            std::mem::forget(self.batcher.clone());
            return;
        }
        let me = self.me;
        // Best effort: if another process is in a transaction, the writer thread ends the claims, and
        // the lock of the session file ends with the process in any case.
        drop(self.batcher.close(move |tx| release::end_all(tx, me)));
        // Here and not with the connection, which the writer thread may still use: a process that
        // ends now would leave its session file behind.
        self.batcher.end_session();
    }
}
