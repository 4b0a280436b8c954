//! The connection of a store: opens it, runs groups of operations in one transaction each, keeps
//! the ceiling, notices that the file was replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clinch_core::store::{OpenContext, RenewReply, Renewal};
use clinch_core::{BootTime, Clock, Effect, Error, Result};
use rusqlite::Connection;

use crate::boot;
use crate::cache::Cache;
use crate::config::Config;
use crate::dead;
use crate::error::io as io_error;
use crate::error::{Fail, Step, blocked, is_busy, is_write_failure, poisoned, sql, wants_reopen};
use crate::events;
use crate::file::{self, Anchor};
use crate::log::{self, Log};
use crate::mine::Mine;
use crate::owner;
use crate::renewals;
use crate::schema;
use crate::sequence::{self, Micros, Numbers, key};
use crate::session::Sessions;
use crate::tx::{News, Tx};

/// How often the session file and the path of the store are looked after.
const SESSION_CHECK: Duration = Duration::from_secs(1);

/// An operation that waits for a transaction.
pub(crate) trait Job: Send {
    /// Runs inside a transaction; again, if that one had to be rolled back.
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()>;
    /// Answers the caller, after the commit or with what prevented it.
    fn done(self: Box<Self>, outcome: Result<()>);
    /// How long it waits for a transaction before it is tried without one; `None` for ever.
    fn patience(&self) -> Option<Duration> {
        None
    }
    /// Runs without a transaction; `false` if it cannot.
    fn run_beside(&mut self, _core: &mut Core) -> bool {
        false
    }
}

pub(crate) type Jobs = Vec<Box<dyn Job>>;

/// Counters that are read from outside.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Pages in the log after the last commit.
    pub(crate) pages: Arc<AtomicU32>,
    /// Pages that the log had when it was last copied back.
    pub(crate) copied: AtomicU32,
}

/// Everything that belongs to the connection.
#[derive(Debug)]
pub(crate) struct Core {
    config: Config,
    context: OpenContext,
    pub(crate) path: PathBuf,
    file: Anchor,
    log: Log,
    db: Connection,
    pub(crate) numbers: Numbers,
    pub(crate) sessions: Sessions,
    pub(crate) mine: Mine,
    cache: Cache,
    pub(crate) counters: Arc<Counters>,
    /// The connection failed in a way that a new one may repair.
    suspect: bool,
    /// Why this client can do nothing more.
    poisoned: Option<Error>,
    session_checked: BootTime,
    /// When idle names were last searched for, as far as this process knows.
    pub(crate) reaped_at: BootTime,
}

/// Why no transaction was begun.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// Another process is in one.
    Busy,
    Failed(Error),
}

impl Core {
    pub(crate) fn open(config: Config, context: OpenContext, micros: Micros) -> Result<Self> {
        schema::check_version(rusqlite::version_number())?;
        let path = file::prepare(&config)?;
        log::refuse_lost(&path)?;
        let counters = Arc::new(Counters::default());
        let (db, file, log, made) = connect(&path, &config, &counters)?;
        let sessions = Sessions::start(&path, context.identity.info(), log.id())?;
        let mut core = Self {
            config,
            context,
            path,
            file,
            log,
            db,
            numbers: Numbers::new(micros),
            sessions,
            mine: Mine::default(),
            cache: Cache::default(),
            counters,
            suspect: false,
            poisoned: None,
            session_checked: Clock::boot().now(),
            reaped_at: Clock::boot().now(),
        };
        // Without claims, its session file goes with it.
        core.greet(made)?;
        Ok(core)
    }

    /// Reads what the file knows, and voids what an earlier boot of the machine left.
    fn greet(&mut self, made: bool) -> Result<()> {
        let failed = |error| sql(error, &self.path);
        let ceiling = sequence::number(&self.db, key::CEILING).map_err(failed)?;
        self.numbers.learn(ceiling);
        self.agree_on_log(made)?;
        boot::void_other_boots(&self.db, &self.path, &self.context.clock, &self.sessions)?;
        schema::stop_waiting(&self.db).map_err(failed)
    }

    /// Makes sure that no running client writes to another log. Clients of a file that was deleted do
    /// not count for the one that was made in its place.
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

    /// Connects anew, for a file that was replaced or a connection that failed. The numbers that
    /// this process has given bind the new file too.
    fn reopen(&mut self) -> Result<()> {
        tracing::warn!(path = %self.path.display(), "opening the store anew: its file was replaced or failed");
        self.path = file::prepare(&self.config)?;
        let (db, file, log, made) = connect(&self.path, &self.config, &self.counters)?;
        let failed = |error| sql(error, &self.path);
        // Until all of this is done the connection is not to be used.
        (self.db, self.file, self.log, self.suspect) = (db, file, log, true);
        self.cache = Cache::default();
        let written = self.sessions.set_log(self.log.id());
        written.map_err(|error| io_error(error, &self.path, "cannot keep a session"))?;
        self.sessions.keep();
        if self.numbers.highest() > 0 {
            let floor = sequence::number(&self.db, key::FLOOR).map_err(failed)?;
            if floor < self.numbers.highest() {
                sequence::raise(&self.db, key::FLOOR, self.numbers.highest()).map_err(failed)?;
            }
        }
        self.greet(made)?;
        self.suspect = false;
        Ok(())
    }

    /// Ends what this client can do: what it knows may not be what others know.
    fn poison(&mut self, why: Error) {
        tracing::error!(error = %why, "the client can do nothing more");
        // Closed, so that a new client of this process starts with nothing of it.
        if let Ok(nothing) = Connection::open_in_memory() {
            self.db = nothing;
        }
        self.cache = Cache::default();
        self.poisoned = Some(why);
        // With claims, others must go on seeing that this client runs: it may believe in them
        // until their leases end.
        if self.mine.is_empty() {
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

    /// Begins a transaction, without waiting for anybody.
    pub(crate) fn begin(&mut self) -> Result<(), NotBegun> {
        self.look_around().map_err(NotBegun::Failed)?;
        if self.numbers.must_raise() {
            match self.raise_ceiling() {
                Err(NotBegun::Busy) => return Err(NotBegun::Busy),
                // A full disk must not keep anybody from reading; a grant fails below.
                Ok(()) | Err(NotBegun::Failed(_)) => {}
            }
        }
        if let Some(why) = &self.poisoned {
            return Err(NotBegun::Failed(why.clone()));
        }
        self.begin_raw()
    }

    /// Makes sure that the files are those that everybody else uses.
    fn look_around(&mut self) -> Result<()> {
        if let Some(why) = &self.poisoned {
            return Err(why.clone());
        }
        let now = Clock::boot().now();
        let check = now.since(self.session_checked) > SESSION_CHECK;
        if check {
            self.session_checked = now;
            self.sessions.keep();
        }
        let replaced = self.file.is_deleted() || check && !self.file.is_at(&self.path);
        if !replaced && (self.log.is_deleted() || check && !self.log.is_at(&self.path)) {
            let why = log::removed(&self.path);
            self.poison(why.clone());
            return Err(why);
        }
        if replaced || self.suspect {
            self.reopen()?;
        }
        Ok(())
    }

    /// Extends holds while another process keeps the writer's lock; `None` if that cannot be done.
    pub(crate) fn renew_beside(&mut self, renewals: &[Renewal]) -> Option<Vec<RenewReply>> {
        if self.suspect || self.look_around().is_err() {
            return None;
        }
        let Self {
            db,
            path,
            sessions,
            context,
            ..
        } = self;
        let load = |renewal: &Renewal| renewals::load(db, path, &context.namespace, renewal);
        renewals::renew_beside(renewals, sessions, load, || context.clock.now())
    }

    fn begin_raw(&mut self) -> Result<(), NotBegun> {
        self.execute("BEGIN IMMEDIATE").map_err(|error| {
            if is_busy(&error) {
                return NotBegun::Busy;
            }
            self.suspect |= wants_reopen(&error);
            NotBegun::Failed(sql(error, &self.path))
        })
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Makes sure, durably, that no number given in the next minute reaches the ceiling.
    pub(crate) fn raise_ceiling(&mut self) -> Result<(), NotBegun> {
        if let Some(why) = &self.poisoned {
            return Err(NotBegun::Failed(why.clone()));
        }
        let failed = |core: &Self, error| NotBegun::Failed(sql(error, &core.path));
        self.db
            .pragma_update(None, "synchronous", "FULL")
            .map_err(|error| failed(self, error))?;
        let raised = self.begin_raw().and_then(|()| {
            let target = self.numbers.target();
            let raised = boot::tick(&self.db)
                .and_then(|()| sequence::raise(&self.db, key::CEILING, target))
                .and_then(|ceiling| self.execute("COMMIT").map(|()| ceiling));
            raised.map_err(|error| NotBegun::Failed(self.failed(error, false).error))
        });
        if self.is_poisoned() {
            return raised.map(drop);
        }
        let normal = self.db.pragma_update(None, "synchronous", "NORMAL");
        self.numbers.learn(raised?);
        self.context.operations.add(1);
        normal.map_err(|error| failed(self, error))
    }

    fn roll_back(&mut self) {
        // They may know of what is undone now.
        self.cache.clear();
        self.mine.rolled_back();
        // It fails where SQLite has rolled back by itself.
        if !self.db.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        // A transaction that cannot be left goes with its connection.
        self.suspect |= !self.db.is_autocommit();
    }

    /// Runs operations in the transaction that has been begun, and commits it. If SQLite fails on
    /// one of them, each is tried again in a transaction of its own.
    pub(crate) fn run(&mut self, mut jobs: Jobs) -> Done {
        match self.attempt(&mut jobs) {
            Ok(news) => Done {
                outcomes: jobs.into_iter().map(|job| (job, Ok(()))).collect(),
                news: vec![news],
            },
            // After a failed commit nobody may be told that nothing happened.
            Err(Failed { error, committing }) if committing || jobs.len() == 1 => Done {
                outcomes: jobs
                    .into_iter()
                    .map(|job| (job, Err(error.clone())))
                    .collect(),
                news: Vec::new(),
            },
            Err(_) => {
                let mut done = Done::default();
                for mut job in jobs {
                    match self.begin() {
                        Ok(()) => done.extend(self.run(vec![job])),
                        Err(NotBegun::Busy) if job.patience().is_some() && job.run_beside(self) => {
                            done.outcomes.push((job, Ok(())));
                        }
                        Err(not_begun) => {
                            done.outcomes.push((job, Err(self.not_begun(not_begun))));
                        }
                    }
                }
                done
            }
        }
    }

    /// The error of an operation that never ran.
    pub(crate) fn not_begun(&self, reason: NotBegun) -> Error {
        match reason {
            NotBegun::Failed(error) => error,
            NotBegun::Busy => blocked(&self.path),
        }
    }

    fn attempt(&mut self, jobs: &mut Jobs) -> Result<News, Failed> {
        // Twice at most: the second time the ceiling is above the numbers of the first.
        loop {
            let stepped = self.steps(jobs);
            let news = stepped.map_err(|error| self.failed(error, false))?;
            if !self.numbers.is_uncovered() {
                // Again: this process may have been stopped since it began.
                self.refuse_lost_log().map_err(|error| Failed {
                    error,
                    committing: false,
                })?;
                let committed = self.execute("COMMIT");
                committed.map_err(|error| self.failed(error, true))?;
                for client in &news.died {
                    self.sessions.remove_dead(*client);
                }
                self.sessions.announced = true;
                self.mine.committed();
                self.context.operations.add(1);
                return Ok(news);
            }
            // No number may be seen before a higher ceiling is on the disk.
            self.roll_back();
            let begun = self.raise_ceiling().and_then(|()| self.begin_raw());
            begun.map_err(|reason| Failed {
                error: self.not_begun(reason),
                committing: false,
            })?;
        }
    }

    /// Undoes a transaction whose log was removed meanwhile: others may not see it.
    fn refuse_lost_log(&mut self) -> Result<()> {
        if !self.log.is_deleted() || self.file.is_deleted() {
            return Ok(());
        }
        self.roll_back();
        let why = log::removed(&self.path);
        self.poison(why.clone());
        Err(why)
    }

    fn steps(&mut self, jobs: &mut Jobs) -> rusqlite::Result<News> {
        self.cache.refresh(&self.db)?;
        if !self.sessions.announced {
            dead::announce(&self.db, self.context.identity.info().id)?;
        }
        let mut tx = Tx {
            db: &self.db,
            path: &self.path,
            ns: &self.context.namespace,
            clock: &self.context.clock,
            sessions: &self.sessions,
            numbers: &mut self.numbers,
            cache: &mut self.cache,
            mine: &mut self.mine,
            news: News::default(),
        };
        for job in jobs {
            match job.run(&mut tx) {
                Ok(()) => {}
                Err(Fail::Sql(error)) => return Err(error),
                // The job keeps its refusal; it has written nothing.
                Err(Fail::Refused(_)) => {}
            }
        }
        events::write(&mut tx)?;
        Ok(tx.news)
    }

    fn failed(&mut self, error: rusqlite::Error, committing: bool) -> Failed {
        if committing {
            self.mine.unsure();
        }
        self.roll_back();
        self.suspect |= wants_reopen(&error);
        let lasting = is_write_failure(&error);
        let mut error = sql(error, &self.path);
        if committing {
            error = error.with_effect(Effect::Possible);
        }
        if lasting {
            self.poison(poisoned(&self.path));
        }
        Failed { error, committing }
    }

    /// Ends the session. With claims left, the unlocked file tells others that they are a dead
    /// client's; without, it goes.
    pub(crate) fn end_session(&mut self) {
        self.sessions.end(self.mine.is_empty());
    }

    /// The connection itself.
    pub(crate) fn connection(&self) -> &Connection {
        &self.db
    }
}

#[cfg(test)]
impl Core {
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.db
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.end_session();
    }
}

#[derive(Debug)]
struct Failed {
    error: Error,
    committing: bool,
}

/// Operations that have run.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) outcomes: Vec<(Box<dyn Job>, Result<()>)>,
    pub(crate) news: Vec<News>,
}

impl Done {
    fn extend(&mut self, other: Self) {
        self.outcomes.extend(other.outcomes);
        self.news.extend(other.news);
    }
}

fn connect(
    path: &Path,
    config: &Config,
    counters: &Counters,
) -> Result<(Connection, Anchor, Log, bool)> {
    let (mut db, made) = schema::connect(path)?;
    let pages = counters.pages.clone();
    let hook = move |_: &mut rusqlite::hooks::Wal, count: std::ffi::c_int| {
        pages.store(count.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    };
    db.wal_hook(Some(hook)).map_err(|error| sql(error, path))?;
    let file = Anchor::at(path).map_err(|e| io_error(e, path, "cannot be read"))?;
    let log = Log::of(path)?;
    if !config.any_owner {
        // Somebody may have made them between the look of `prepare` and the opening.
        owner::refuse_neighbours(path)?;
    }
    Ok((db, file, log, made))
}
