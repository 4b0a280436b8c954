//! Work off the hot path: checkpoints, the ceiling, idle names, files of dead sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::{BootTime, Clock, Result};

use crate::core::{Core, Job};
use crate::dead;
use crate::error::{Fail, Step};
use crate::events;
use crate::renewals;
use crate::rows::{NameRow, column};
use crate::schema;
use crate::sequence::{self, key};
use crate::tx::Tx;
use crate::writer::Writer;

/// Pages in the log from which it is copied back to the main file, in the background.
const LONG_LOG: u32 = 1000;
/// Pages from which a process that ends copies it back.
const SHORT_LOG: u32 = 200;
/// Pages from which writers are held up for it: else a busy process would never let it end.
const TOO_LONG_LOG: u32 = 4 * LONG_LOG;
/// How long that waits for the transactions of other processes.
const RESTART_WAIT: Duration = Duration::from_millis(200);
/// How often idle names are searched for.
const REAP_EVERY: Duration = Duration::from_secs(120);
/// How many names one search looks at.
const REAP_BATCH: u32 = 500;

/// Whether there is something to do for the writer thread.
pub(crate) fn is_due(core: &Core) -> bool {
    log_is_long(core) || core.numbers.should_raise() || core.reap_is_due(Clock::boot().now())
}

/// Whether the log has grown by a good part since it was last copied back. It starts anew only when
/// all of it has been copied, which a busy process does not let happen by itself.
fn log_is_long(core: &Core) -> bool {
    let pages = core.counters.pages.load(Ordering::Relaxed);
    let copied = core.counters.copied.load(Ordering::Relaxed);
    // Fewer than were copied: it has started anew.
    let since = pages.checked_sub(copied).unwrap_or(pages);
    since >= LONG_LOG
}

/// Does what is due. On the writer thread.
pub(crate) fn tidy(writer: &Arc<Writer>) {
    let due = writer.with_core(|core| {
        if core.numbers.should_raise() {
            // Busy or failed: the next grant that needs it tries again.
            let _ = core.raise_ceiling();
        }
        core.reap_if_due();
        let long = log_is_long(core) && !core.has_lost_log();
        if long {
            let pages = core.counters.pages.load(Ordering::Relaxed);
            core.counters.copied.store(pages, Ordering::Relaxed);
        }
        long.then(|| core.path.clone())
    });
    let Some(path) = due else {
        return;
    };
    // On a connection of its own, so that operations go on meanwhile.
    if let Ok(db) = schema::open_raw(&path) {
        let _ = schema::tune(&db);
        // One process does it for all: the others find it at work, or the log short again.
        if checkpoint(&db, "PASSIVE").is_some_and(|pages| pages >= TOO_LONG_LOG) {
            // Little is left to copy, so it does not take long.
            let _ = db.busy_timeout(RESTART_WAIT);
            checkpoint(&db, "RESTART");
        }
    }
}

/// Copies the log back. A passive one never waits; a restarting one holds up other writers until
/// all is copied, so that the log starts anew. Returns the pages of the log, unless another process
/// is at it.
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

/// Removes names that nobody uses any more, and watchers that have died; a bounded number of them.
pub(crate) fn reap(tx: &mut Tx<'_>) -> Step<()> {
    let now = tx.clock.now();
    // Rows go behind its back.
    tx.cache.clear();
    let after = sequence::number(tx.db, key::REAPED)?;
    let rows = NameRow::batch(tx.db, tx.path, column(after), REAP_BATCH)?;
    let next = match u32::try_from(rows.count) {
        Ok(count) if count < REAP_BATCH => 0,
        _ => rows.last,
    };
    let mut floor = 0;
    for mut row in rows.sound {
        renewals::take_up(&mut row.state, now, tx.db, tx.sessions)?;
        if row.state.is_forgettable(now) {
            floor = floor.max(row.state.last_seq);
            row.forget(tx.db)?;
        }
    }
    sequence::raise(tx.db, key::FLOOR, floor)?;
    sequence::set(tx.db, key::REAPED, next)?;
    for client in events::watchers(tx.db)? {
        if tx.sessions.is_gone(client) {
            events::unsubscribe(tx, client)?;
        }
    }
    let stale = tx.sessions.stale().unwrap_or_default();
    let (stale, held): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
    dead::remember(tx.db, &stale)?;
    tx.news.died.extend(stale);
    tx.news.held.extend(held);
    tx.sessions.sweep_drafts();
    dead::forget_old(tx.db, now)?;
    let machine_now = Clock::boot().now().as_nanos();
    sequence::set(tx.db, key::REAPED_AT, column(machine_now)).map_err(Fail::from)
}

/// A step that nobody waits for.
struct Own<F>(F);

impl<F: FnMut(&mut Tx<'_>) -> Step<()> + Send> Job for Own<F> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()> {
        (self.0)(tx)
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        if let Err(error) = outcome {
            tracing::debug!(%error, "tidying up");
        }
    }
}

impl Core {
    /// Does on the way out what a process that lives longer does in the background.
    pub(crate) fn finish(&mut self) {
        if self.is_poisoned() {
            return self.end_session();
        }
        self.reaped_at = BootTime::default();
        self.reap_if_due();
        // Whoever comes next reads the whole log, if nobody has the file open until then; and what
        // was copied is forgotten with the last process, unless the log is cut.
        if self.counters.pages.load(Ordering::Relaxed) >= SHORT_LOG && !self.has_lost_log() {
            checkpoint(self.connection(), "TRUNCATE");
        }
        self.end_session();
    }

    fn reap_is_due(&self, now: BootTime) -> bool {
        now.since(self.reaped_at) >= REAP_EVERY
    }

    /// Searches for idle names if the last search, by any process, was long ago.
    pub(crate) fn reap_if_due(&mut self) {
        let now = Clock::boot().now();
        if !self.reap_is_due(now) {
            return;
        }
        let known = sequence::number(self.connection(), key::REAPED_AT).map(BootTime::from_nanos);
        self.reaped_at = known.unwrap_or(now).min(now);
        if self.reap_is_due(now) && self.begin().is_ok() {
            self.reaped_at = now;
            self.run(vec![Box::new(Own(reap))]);
        }
    }
}
