//! The embedded store.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{
    Claim, ClaimReply, Freshness, Hold, ReleaseReply, RenewReply, Renewal, Store, StoreInfo,
    Suspicions, Wakes,
};
use clinch_core::{ClientId, Name, Result};

use crate::core::Core;
use crate::deaths::Deaths;
use crate::error::vanished;
use crate::steps::{end_own, run_claim};
use crate::tx::Tx;
use crate::writer::{Route, Writer};

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
    pub(crate) writer: Arc<Writer>,
    pub(crate) deaths: Arc<Deaths>,
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
        let (asked, pid) = (claim.clone(), self.pid);
        let step = move |tx: &mut Tx<'_>| run_claim(tx, &asked, pid);
        // Whether others could reach us from the moment of the commit.
        let reachable = self.writer.bells().is_bound();
        let (mut reply, ahead) = self.writer.call(Route::Inline, step).await?;
        if let ClaimReply::Queued(queued) = &mut reply {
            queued.wakes_kept = reachable;
        }
        if !ahead.is_empty() {
            self.deaths.watch(claim.request, &ahead);
        }
        Ok(reply)
    }

    fn wakes(&self, claim: &Claim) -> Wakes {
        self.writer.bells().register(claim.request)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.writer.renew(renewals).await
    }

    fn suspicions(&self) -> Suspicions {
        // A removed log or file is noticed by the next transaction, which a renewal is.
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let hold = hold.clone();
        let step = move |tx: &mut Tx<'_>| {
            let reply = tx.on_name(&hold.name, |name| {
                name.step(|state, now, seq, out| state.release(&hold, now, seq, out))
            })?;
            tx.mine.remove(hold.request);
            Ok(reply)
        };
        self.writer.call(Route::Inline, step).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let claim = claim.clone();
        let step = move |tx: &mut Tx<'_>| {
            tx.on_name(&claim.name, |name| {
                name.step(|state, now, seq, out| state.withdraw(&claim, now, seq, out));
            })?;
            tx.mine.remove(claim.request);
            Ok(())
        };
        self.writer.call(Route::Inline, step).await
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let name = name.clone();
        let step = move |tx: &mut Tx<'_>| {
            tx.on_name(&name, |name| {
                if name.state.check(seq, name.now).is_current() {
                    name.bury_holders();
                }
                name.state.check(seq, name.now)
            })
        };
        self.writer.call(Route::Inline, step).await
    }

    async fn close(&self) -> Result<()> {
        let me = self.me;
        let Some(ended) = self.writer.close(move |tx| end_own(tx, me)) else {
            return Ok(());
        };
        let ended = ended.await.unwrap_or_else(|_| Err(vanished()));
        self.writer.with_core(Core::finish);
        ended
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if self.writer.is_forked() {
            // The session, the connection and the locks are those of the parent: nothing of them may
            // be closed here, so they stay until this process ends.
            std::mem::forget(self.writer.clone());
            return;
        }
        let me = self.me;
        // Best effort: if another process is busy now, the writer thread ends the claims, and the
        // lock of the session file goes with the process in any case.
        drop(self.writer.close(move |tx| end_own(tx, me)));
        // Here and not with the connection, which the writer thread may still have: a process that
        // ends now would leave its session file behind.
        self.writer.leave();
    }
}
