//! The connection of a store: opens the file, begins transactions, and notices if the file or its
//! log was replaced.

mod commit;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clinch_core::store::{OpenContext, RenewReply, Renewal};
use clinch_core::{BootTime, Clock, Error, Result};
use rusqlite::Connection;

use crate::boot;
use crate::cache::Cache;
use crate::config::Config;
use crate::error::io as io_error;
use crate::error::{is_busy, needs_reopen, sql};
use crate::file::log::{self, Log};
use crate::file::{self, PinnedFile, owner};
use crate::ledger::Ledger;
use crate::renew;
use crate::schema;
use crate::sequence::{self, Micros, Numbers, key};
use crate::session::Sessions;
pub(crate) use commit::Done;

/// How often the session file and the path of the store are checked.
const FILE_CHECK: Duration = Duration::from_secs(1);

/// The connection with all state that belongs to it.
#[derive(Debug)]
pub(crate) struct Database {
    config: Config,
    context: OpenContext,
    pub(crate) path: PathBuf,
    file: PinnedFile,
    log: Log,
    db: Connection,
    pub(crate) numbers: Numbers,
    pub(crate) sessions: Sessions,
    pub(crate) ledger: Ledger,
    cache: Cache,
    /// Pages in the log after the last commit.
    log_pages: Arc<AtomicU32>,
    /// Pages that the log had at its last checkpoint.
    pub(crate) checkpointed: u32,
    /// The connection failed in a way that a new one may repair.
    needs_reopen: bool,
    /// Why this client can do nothing more.
    poisoned: Option<Error>,
    files_checked: BootTime,
    /// When idle names were last removed, as far as this process has read.
    pub(crate) cleaned_at: BootTime,
}

/// Why no transaction was begun.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// Another process is in one.
    Busy,
    Failed(Error),
}

impl Database {
    pub(crate) fn open(config: Config, context: OpenContext, micros: Micros) -> Result<Self> {
        schema::check_version(rusqlite::version_number())?;
        let path = file::prepare(&config)?;
        log::refuse_lost(&path)?;
        let log_pages = Arc::default();
        let (db, file, log, made) = connect(&path, &config, &log_pages)?;
        let sessions = Sessions::start(&path, context.identity.info(), log.id())?;
        let mut database = Self {
            config,
            context,
            path,
            file,
            log,
            db,
            numbers: Numbers::new(micros),
            sessions,
            ledger: Ledger::default(),
            cache: Cache::default(),
            log_pages,
            checkpointed: 0,
            needs_reopen: false,
            poisoned: None,
            files_checked: Clock::boot().now(),
            cleaned_at: Clock::boot().now(),
        };
        // If this fails, the session file is removed: there are no claims.
        database.load_state(made)?;
        Ok(database)
    }

    /// Reads the state of the file, and voids what an earlier boot of the machine left.
    fn load_state(&mut self, made: bool) -> Result<()> {
        let failed = |error| sql(error, &self.path);
        let ceiling = sequence::number(&self.db, key::CEILING).map_err(failed)?;
        self.numbers.set_ceiling(ceiling);
        self.agree_on_log(made)?;
        boot::void_other_boots(&self.db, &self.path, &self.context.clock, &self.sessions)?;
        schema::stop_waiting(&self.db).map_err(failed)
    }

    /// Refuses the file if a running client writes to another log. Clients of a file that was deleted
    /// do not count for the one that was made in its place.
    fn agree_on_log(&self, made: bool) -> Result<()> {
        let failed = |error| sql(error, &self.path);
        let log = self.log.id();
        if sequence::text(&self.db, key::LOG).map_err(failed)? == log.to_string() {
            return Ok(());
        }
        let me = self.context.identity.info().id;
        if !made {
            log::refuse_split(&self.path, Some(log), Some(me))?;
        }
        sequence::set(&self.db, key::LOG, log.to_string()).map_err(failed)
    }

    /// Connects again, after the file was replaced or the connection failed. The numbers that this
    /// process has given are a lower bound for the new file, too.
    fn reopen(&mut self) -> Result<()> {
        tracing::warn!(path = %self.path.display(), "opening the store again: its file was replaced or failed");
        self.path = file::prepare(&self.config)?;
        let (db, file, log, made) = connect(&self.path, &self.config, &self.log_pages)?;
        let failed = |error| sql(error, &self.path);
        // The connection must not be used before all of this is done.
        (self.db, self.file, self.log, self.needs_reopen) = (db, file, log, true);
        self.cache = Cache::default();
        let written = self.sessions.set_log(self.log.id());
        written.map_err(|error| io_error(error, &self.path, "cannot keep a session"))?;
        self.sessions.restore();
        if self.numbers.highest() > 0 {
            let floor = sequence::number(&self.db, key::FLOOR).map_err(failed)?;
            if floor < self.numbers.highest() {
                sequence::raise(&self.db, key::FLOOR, self.numbers.highest()).map_err(failed)?;
            }
        }
        self.load_state(made)?;
        self.needs_reopen = false;
        Ok(())
    }

    /// Disables this client: its view of the file may differ from that of others.
    fn poison(&mut self, why: Error) {
        tracing::error!(error = %why, "the client can do nothing more");
        // Closed, so that a new client of this process shares nothing with it.
        if let Ok(empty) = Connection::open_in_memory() {
            self.db = empty;
        }
        self.cache = Cache::default();
        self.poisoned = Some(why);
        // With claims, others must still see that this client runs: its holds are valid until their
        // leases end.
        if self.ledger.is_empty() {
            self.end_session();
        }
    }

    /// Whether another connection would find another log.
    pub(crate) fn has_lost_log(&self) -> bool {
        self.is_poisoned() || self.log.is_deleted()
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Begins a transaction, without waiting for other processes.
    pub(crate) fn begin(&mut self) -> Result<(), NotBegun> {
        self.check_files().map_err(NotBegun::Failed)?;
        if self.numbers.must_raise() {
            match self.raise_ceiling() {
                Err(NotBegun::Busy) => return Err(NotBegun::Busy),
                // A full disk must not prevent reading; a grant fails below.
                Ok(()) | Err(NotBegun::Failed(_)) => {}
            }
        }
        if let Some(why) = &self.poisoned {
            return Err(NotBegun::Failed(why.clone()));
        }
        self.begin_raw()
    }

    /// Makes sure that the files are those that all other clients use.
    fn check_files(&mut self) -> Result<()> {
        if let Some(why) = &self.poisoned {
            return Err(why.clone());
        }
        let now = Clock::boot().now();
        let check = now.since(self.files_checked) > FILE_CHECK;
        if check {
            self.files_checked = now;
            self.sessions.restore();
        }
        let replaced = self.file.is_deleted() || check && !self.file.is_at(&self.path);
        if !replaced && (self.log.is_deleted() || check && !self.log.is_at(&self.path)) {
            let why = log::removed(&self.path);
            self.poison(why.clone());
            return Err(why);
        }
        if replaced || self.needs_reopen {
            self.reopen()?;
        }
        Ok(())
    }

    /// Extends holds while another process keeps the writer's lock; `None` if that cannot be done.
    pub(crate) fn renew_without_lock(&mut self, renewals: &[Renewal]) -> Option<Vec<RenewReply>> {
        if self.needs_reopen || self.check_files().is_err() {
            return None;
        }
        let Self {
            db,
            path,
            sessions,
            context,
            ..
        } = self;
        let load = |renewal: &Renewal| renew::load(db, path, &context.namespace, renewal);
        renew::renew_without_lock(renewals, sessions, load, || context.clock.now())
    }

    fn begin_raw(&mut self) -> Result<(), NotBegun> {
        self.execute("BEGIN IMMEDIATE").map_err(|error| {
            if is_busy(&error) {
                return NotBegun::Busy;
            }
            self.needs_reopen |= needs_reopen(&error);
            NotBegun::Failed(sql(error, &self.path))
        })
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Pages in the log after the last commit.
    pub(crate) fn log_pages(&self) -> u32 {
        self.log_pages.load(Ordering::Relaxed)
    }

    /// Ends the session. If claims are left, the unlocked file shows others that their client is
    /// dead; otherwise the file is removed.
    pub(crate) fn end_session(&mut self) {
        self.sessions.end(self.ledger.is_empty());
    }

    /// The connection itself.
    pub(crate) fn connection(&self) -> &Connection {
        &self.db
    }
}

#[cfg(test)]
impl Database {
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.db
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.end_session();
    }
}

fn connect(
    path: &Path,
    config: &Config,
    log_pages: &Arc<AtomicU32>,
) -> Result<(Connection, PinnedFile, Log, bool)> {
    let (mut db, made) = schema::connect(path)?;
    let pages = log_pages.clone();
    let hook = move |_: &mut rusqlite::hooks::Wal, count: std::ffi::c_int| {
        pages.store(count.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    };
    db.wal_hook(Some(hook)).map_err(|error| sql(error, path))?;
    let file = PinnedFile::at(path).map_err(|e| io_error(e, path, "cannot be read"))?;
    let log = Log::of(path)?;
    if !config.any_owner {
        // Another user may have made them between the check of `prepare` and the opening.
        owner::refuse_neighbours(path)?;
    }
    Ok((db, file, log, made))
}
