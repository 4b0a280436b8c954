//! Runs jobs in transactions and commits them, below a durable ceiling of sequence numbers.

use clinch_core::{Effect, Error, Result};

use super::{Database, NotBegun};
use crate::batch::{Job, Jobs};
use crate::boot;
use crate::error::{Fail, blocked, is_write_failure, needs_reopen, poisoned, sql};
use crate::events;
use crate::file::log;
use crate::sequence::{self, key};
use crate::session::dead_clients;
use crate::transaction::{AfterCommit, Tx};

/// Jobs that have run.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) outcomes: Vec<(Box<dyn Job>, Result<()>)>,
    pub(crate) after: Vec<AfterCommit>,
}

impl Done {
    fn extend(&mut self, other: Self) {
        self.outcomes.extend(other.outcomes);
        self.after.extend(other.after);
    }
}

#[derive(Debug)]
struct Failed {
    error: Error,
    committing: bool,
}

impl Database {
    /// Runs jobs in the transaction that has been begun, and commits it. If SQLite fails on one of
    /// them, each is tried again in a transaction of its own.
    pub(crate) fn run(&mut self, mut jobs: Jobs) -> Done {
        match self.attempt(&mut jobs) {
            Ok(after) => Done {
                outcomes: jobs.into_iter().map(|job| (job, Ok(()))).collect(),
                after: vec![after],
            },
            // After a failed commit, no caller may get an error that rules out an effect.
            Err(Failed { error, committing }) if committing || jobs.len() == 1 => Done {
                outcomes: jobs
                    .into_iter()
                    .map(|job| (job, Err(error.clone())))
                    .collect(),
                after: Vec::new(),
            },
            Err(_) => {
                let mut done = Done::default();
                for mut job in jobs {
                    match self.begin() {
                        Ok(()) => done.extend(self.run(vec![job])),
                        Err(NotBegun::Busy)
                            if job.lock_wait().is_some() && job.run_without_lock(self) =>
                        {
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

    /// The error of a job that never ran.
    pub(crate) fn not_begun(&self, reason: NotBegun) -> Error {
        match reason {
            NotBegun::Failed(error) => error,
            NotBegun::Busy => blocked(&self.path),
        }
    }

    fn attempt(&mut self, jobs: &mut Jobs) -> Result<AfterCommit, Failed> {
        // Twice at most: the second time the ceiling is above the numbers of the first.
        loop {
            let stepped = self.run_steps(jobs);
            let after = stepped.map_err(|error| self.failed(error, false))?;
            if !self.numbers.is_uncovered() {
                // Again: this process may have been stopped since it began.
                self.refuse_lost_log().map_err(|error| Failed {
                    error,
                    committing: false,
                })?;
                let committed = self.execute("COMMIT");
                committed.map_err(|error| self.failed(error, true))?;
                for client in &after.dead {
                    self.sessions.remove_dead(*client);
                }
                self.sessions.announced = true;
                self.ledger.committed();
                self.context.operations.add(1);
                return Ok(after);
            }
            // No number may be visible before a higher ceiling is on the disk.
            self.roll_back();
            let begun = self.raise_ceiling().and_then(|()| self.begin_raw());
            begun.map_err(|reason| Failed {
                error: self.not_begun(reason),
                committing: false,
            })?;
        }
    }

    fn run_steps(&mut self, jobs: &mut Jobs) -> rusqlite::Result<AfterCommit> {
        self.cache.refresh(&self.db)?;
        if !self.sessions.announced {
            dead_clients::clear_missing(&self.db, self.context.identity.info().id)?;
        }
        let mut tx = Tx {
            db: &self.db,
            path: &self.path,
            ns: &self.context.namespace,
            clock: &self.context.clock,
            sessions: &self.sessions,
            numbers: &mut self.numbers,
            cache: &mut self.cache,
            ledger: &mut self.ledger,
            after: AfterCommit::default(),
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
        Ok(tx.after)
    }

    /// Rolls a transaction back whose log was removed meanwhile: others may not see it.
    fn refuse_lost_log(&mut self) -> Result<()> {
        if !self.log.is_deleted() || self.file.is_deleted() {
            return Ok(());
        }
        self.roll_back();
        let why = log::removed(&self.path);
        self.poison(why.clone());
        Err(why)
    }

    /// Makes sure, durably, that no number given in the next minute reaches the ceiling.
    pub(crate) fn raise_ceiling(&mut self) -> Result<(), NotBegun> {
        if let Some(why) = &self.poisoned {
            return Err(NotBegun::Failed(why.clone()));
        }
        let failed = |database: &Self, error| NotBegun::Failed(sql(error, &database.path));
        self.db
            .pragma_update(None, "synchronous", "FULL")
            .map_err(|error| failed(self, error))?;
        let raised = self.begin_raw().and_then(|()| {
            let target = self.numbers.target();
            let raised = boot::record_clock(&self.db)
                .and_then(|()| sequence::raise(&self.db, key::CEILING, target))
                .and_then(|ceiling| self.execute("COMMIT").map(|()| ceiling));
            raised.map_err(|error| NotBegun::Failed(self.failed(error, false).error))
        });
        if self.is_poisoned() {
            return raised.map(drop);
        }
        let normal = self.db.pragma_update(None, "synchronous", "NORMAL");
        self.numbers.set_ceiling(raised?);
        self.context.operations.add(1);
        normal.map_err(|error| failed(self, error))
    }

    fn roll_back(&mut self) {
        // Both may contain what is undone now.
        self.cache.clear();
        self.ledger.rolled_back();
        // It fails where SQLite has rolled back by itself.
        if !self.db.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        // A transaction that cannot be ended ends with its connection.
        self.needs_reopen |= !self.db.is_autocommit();
    }

    fn failed(&mut self, error: rusqlite::Error, committing: bool) -> Failed {
        if committing {
            self.ledger.commit_unknown();
        }
        self.roll_back();
        self.needs_reopen |= needs_reopen(&error);
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
}
