//! Cleanup in the background: checkpoints, the ceiling, idle names, files of dead sessions.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{BootTime, Clock, Result};

use crate::batch::{Batcher, Job};
use crate::connection::Database;
use crate::error::{Fail, Step};
use crate::events;
use crate::record::{NameRecord, column};
use crate::renew;
use crate::schema;
use crate::sequence::{self, key};
use crate::session::dead_clients;
use crate::transaction::Tx;

/// Pages that the log has grown by before a checkpoint copies it to the main file.
const LONG_LOG: u32 = 1000;
/// Pages from which a process that ends makes a checkpoint.
const SHORT_LOG: u32 = 200;
/// Pages from which a checkpoint blocks writers: otherwise, under load, it would never complete.
const TOO_LONG_LOG: u32 = 4 * LONG_LOG;
/// Longest wait of such a checkpoint for the transactions of other processes.
const RESTART_WAIT: Duration = Duration::from_millis(200);
/// How often idle names are removed.
const CLEANUP_EVERY: Duration = Duration::from_secs(120);
/// How many names one cleanup reads.
const CLEANUP_BATCH: u32 = 500;

/// Whether there is work for the writer thread.
pub(crate) fn is_due(database: &Database) -> bool {
    log_is_long(database)
        || database.numbers.should_raise()
        || database.cleanup_is_due(Clock::boot().now())
}

/// Whether the log has grown by many pages since its last checkpoint. It starts again only after a
/// complete one, which never happens by itself under load.
fn log_is_long(database: &Database) -> bool {
    let pages = database.log_pages();
    // Fewer than at the checkpoint: it has started again.
    let since = pages.checked_sub(database.checkpointed).unwrap_or(pages);
    since >= LONG_LOG
}

/// Does the work that is due. On the writer thread.
pub(crate) fn run(batcher: &Arc<Batcher>) {
    let due = batcher.with_database(|database| {
        if database.numbers.should_raise() {
            // Busy or failed: the next grant that needs it tries again.
            let _ = database.raise_ceiling();
        }
        database.clean_if_due();
        let long = log_is_long(database) && !database.has_lost_log();
        if long {
            database.checkpointed = database.log_pages();
        }
        long.then(|| database.path.clone())
    });
    let Some(path) = due else {
        return;
    };
    // On a connection of its own, so that operations go on meanwhile.
    if let Ok(db) = schema::open_raw(&path) {
        let _ = schema::tune(&db);
        // One process does it for all: the others find it busy, or the log short again.
        if checkpoint(&db, "PASSIVE").is_some_and(|pages| pages >= TOO_LONG_LOG) {
            // Few pages are left to copy, so it is short.
            let _ = db.busy_timeout(RESTART_WAIT);
            checkpoint(&db, "RESTART");
        }
    }
}

/// Makes a checkpoint. `PASSIVE` never waits; `RESTART` blocks other writers until all pages are
/// copied, so that the log starts again. Returns the pages of the log, unless another process makes
/// a checkpoint.
fn checkpoint(db: &rusqlite::Connection, mode: &str) -> Option<u32> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let done = db.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
    match done {
        Ok((0, pages)) => Some(pages),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "checkpoint");
            None
        }
    }
}

/// Removes idle names (a bounded number), dead watchers, and what dead sessions left.
pub(crate) fn clean(tx: &mut Tx<'_>) -> Step<()> {
    let now = tx.clock.now();
    // The rows below are removed without it.
    tx.cache.clear();
    let after = sequence::number(tx.db, key::CLEANED)?;
    let records = NameRecord::batch(tx.db, tx.path, column(after), CLEANUP_BATCH)?;
    let next = match u32::try_from(records.count) {
        Ok(count) if count < CLEANUP_BATCH => 0,
        _ => records.last,
    };
    let mut floor = 0;
    for mut record in records.sound {
        renew::apply_file_renewals(&mut record.state, now, tx.db, tx.sessions)?;
        if record.state.is_forgettable(now) {
            floor = floor.max(record.state.last_seq);
            record.remove(tx.db)?;
        }
    }
    sequence::raise(tx.db, key::FLOOR, floor)?;
    sequence::set(tx.db, key::CLEANED, next)?;
    for client in events::watchers(tx.db)? {
        if tx.sessions.has_ended(client) {
            events::unsubscribe(tx, client)?;
        }
    }
    let stale = tx.sessions.stale().unwrap_or_default();
    let (stale, held): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
    dead_clients::record(tx.db, &stale)?;
    tx.after.dead.extend(stale);
    tx.after.held.extend(held);
    tx.sessions.remove_drafts();
    dead_clients::remove_old(tx.db, now)?;
    let machine_now = Clock::boot().now().as_nanos();
    sequence::set(tx.db, key::CLEANED_AT, column(machine_now)).map_err(Fail::from)
}

/// A cleanup without a caller.
struct Cleanup;

impl Job for Cleanup {
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()> {
        clean(tx)
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        if let Err(error) = outcome {
            tracing::debug!(%error, "cleanup");
        }
    }
}

impl Database {
    /// Does before the end of the session what a longer one does in the background.
    pub(crate) fn finish(&mut self) {
        if self.is_poisoned() {
            return self.end_session();
        }
        self.cleaned_at = BootTime::default();
        self.clean_if_due();
        // If no other client has the file open, the next one reads the whole log; how far it was
        // copied is lost with the last process, unless the log is truncated.
        if self.log_pages() >= SHORT_LOG && !self.has_lost_log() {
            checkpoint(self.connection(), "TRUNCATE");
        }
        self.end_session();
    }

    fn cleanup_is_due(&self, now: BootTime) -> bool {
        now.since(self.cleaned_at) >= CLEANUP_EVERY
    }

    /// Cleans up if the last cleanup, by any process, was long ago.
    fn clean_if_due(&mut self) {
        let now = Clock::boot().now();
        if !self.cleanup_is_due(now) {
            return;
        }
        let last = sequence::number(self.connection(), key::CLEANED_AT).map(BootTime::from_nanos);
        self.cleaned_at = last.unwrap_or(now).min(now);
        if self.cleanup_is_due(now) && self.begin().is_ok() {
            self.cleaned_at = now;
            self.run(vec![Box::new(Cleanup)]);
        }
    }
}
