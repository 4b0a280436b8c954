//! The embedded store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Capabilities, Claim, ClaimReply, Events, Evicted, Finding, Freshness, Guarantees, Hold, Limits,
    LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Store, StoreInfo, Wakes,
};
use clinch_core::{ClientId, MAX_NAME, Name, Result, StoreUrl, keeper};

use crate::config::Config;
use crate::core::Core;
use crate::deaths::Deaths;
use crate::error::{Step, vanished};
use crate::events::Feed;
use crate::rows::NameRow;
use crate::sequence::{Micros, wall};
use crate::steps::{end_own, run_claim, view};
use crate::tx::Tx;
use crate::wakes::Bells;
use crate::writer::{Route, Writer};
use crate::{doctor, events};

/// Locks in a SQLite file, for the processes of one machine.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::store::{OpenContext, Store};
/// use clinch_core::{Clock, Identity};
/// use clinch_sqlite::SqliteStore;
/// # let folder = std::env::temp_dir();
/// # let file = folder.join(format!("clinch-doc-{}.db", std::process::id()));
/// let url = format!("sqlite:{}", file.display()).parse()?;
/// let store = SqliteStore::open(&url, OpenContext {
///     namespace: "clinch".into(),
///     identity: Identity::new().into(),
///     clock: Clock::boot(),
/// })?;
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
    info: StoreInfo,
    me: ClientId,
    pid: u32,
    path: PathBuf,
    writer: Arc<Writer>,
    deaths: Arc<Deaths>,
}

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
        Self::open_with(url, context, wall())
    }

    pub(crate) fn open_with(url: &StoreUrl, context: OpenContext, micros: Micros) -> Result<Self> {
        let config = Config::from_url(url)?;
        let (busy, client) = (config.busy, context.identity.info().clone());
        let core = Core::open(config, context, micros)?;
        let bells = Arc::new(Bells::new(core.sessions.folder(), client.id));
        Ok(Self {
            info: Self::describe(),
            me: client.id,
            pid: client.pid,
            path: core.path.clone(),
            writer: Arc::new(Writer::new(core, busy, bells.clone())),
            deaths: Arc::new(Deaths::new(bells)),
        })
    }

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

    /// What this store is, without opening it.
    ///
    /// ```
    /// let info = clinch_sqlite::SqliteStore::describe();
    /// assert_eq!(info.scheme, "sqlite");
    /// assert!(info.capabilities.queue && info.capabilities.events);
    /// ```
    pub fn describe() -> StoreInfo {
        StoreInfo {
            scheme: "sqlite",
            summary: "embedded store in one file, for the processes of one machine",
            capabilities: Capabilities::ALL,
            guarantees: Guarantees {
                scope: "processes of one machine that can write the file",
                exclusion: "while the file is kept: each grant is a committed transaction; a \
                            deleted file loses its holds, which their next renewal reports; \
                            where the log alone is removed, nothing is granted until its users \
                            have ended",
                token_order: "across clients, crashes, reboots, power cuts and clock steps; after \
                              the file was deleted, as long as the wall clock has not gone back",
                liveness: "a dead process's locks are free at once, after its lock-delay; a \
                           stopped one's after its lease and lock-delay, but nothing is granted \
                           while a process is stopped in the middle of a transaction (holds stay)",
                clock: "CLOCK_BOOTTIME of the machine; a reboot ends every hold",
            },
            limits: Limits {
                min_lease: Duration::from_millis(50),
                max_lease: Duration::from_secs(7 * 86_400),
                lease_step: Duration::from_nanos(1),
                max_name: MAX_NAME,
            },
        }
    }

    #[cfg(test)]
    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.writer
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

    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        let step = move |tx: &mut Tx<'_>| {
            let rows = NameRow::in_use(tx.db, tx.path, tx.ns, &prefix)?.sound();
            let views = rows.into_iter().map(|row| tx.on_row(row, view));
            views.filter_map(Step::transpose).collect()
        };
        self.writer.call(Route::Thread, step).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let name = name.clone();
        let step = move |tx: &mut Tx<'_>| tx.on_name(&name, view);
        self.writer.call(Route::Inline, step).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        let me = self.me;
        let bells = self.writer.bells();
        bells.listen();
        // Before the watch begins, so that no other stream that ends just now ends it.
        let nudges = bells.nudges();
        let last = self
            .writer
            .call(Route::Inline, move |tx| events::subscribe(tx, me))
            .await?;
        let (sender, events) = Events::channel();
        let feed = Feed {
            writer: self.writer.clone(),
            prefix: prefix.into(),
            me,
            nudges,
            to: sender,
        };
        keeper::spawn(feed.run(last))?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let name = name.clone();
        let step = move |tx: &mut Tx<'_>| {
            tx.on_name(&name, |name| {
                name.step(|state, now, numbers, out| state.evict(seq, now, numbers, out))
            })
        };
        self.writer.call(Route::Inline, step).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.writer
            .call(Route::Thread, |tx| Ok(doctor::examine(tx)))
            .await
    }

    fn operations(&self) -> u64 {
        self.writer.transactions()
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
